"""Importance weights of the old policy over the sampler, `exp(lp_old - lp_behaviour)`: of a decision, of a member, and
the geometric mean over a member's decisions.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.objective.decisions import LOG_LIMIT
from groupwise.statistics import row_count


def decision_weight(log_weight: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Returns `w [B, T]`, of each decision.

    Args:
        log_weight: `lp_old - lp_behaviour`, nats.
    """
    return log_weight.exp()


def member_weight(log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B 1"]:
    """Returns `[B, 1]`, the product over a member's valid decisions, clamped to `exp(+-80)`; 1 for a member without
    any.

    Args:
        log_weight: `lp_old - lp_behaviour`, nats.
        mask: valid decisions.

    Example:
        >>> member_weight(torch.tensor([[2.0, 1.5, 9.0]]).log(), torch.tensor([[True, True, False]])).tolist()
        [[3.0]]
    """
    return torch.where(mask, log_weight, 0.0).sum(1, keepdim=True).clamp(-LOG_LIMIT, LOG_LIMIT).exp()


def mean_weight(log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B 1"]:
    """Returns `[B, 1]`, the geometric mean over a member's valid decisions; 1 for a member without any.

    Args:
        log_weight: `lp_old - lp_behaviour`, nats.
        mask: valid decisions.

    Example:
        >>> mean_weight(
        ...     torch.tensor([[2.0, 8.0, 9.0]], dtype=torch.float64).log(), torch.tensor([[True, True, False]])
        ... ).round(decimals=9).tolist()
        [[4.0]]
    """
    return (torch.where(mask, log_weight, 0.0).sum(1, keepdim=True) / row_count(mask).clamp(min=1)).exp()
