"""Whose gradient a member's ratio carries: each decision's own (the token form), or one that all of the
member share.
"""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.stop_gradient import stop_gradient
from groupwise.statistics import both


def token_gradient(log_level: Float[Tensor, "B K"], decisions: Decisions) -> Float[Tensor, "B T"]:
    """`log rho_t = sg(log rho) + lp_t - sg(lp_t)` (GSPO-token, arXiv 2507.18071, equation 14), `[B, T]` from `[B, 1]`.

    Args:
        log_level: `[B, 1]` nats, the member's.
        decisions: of the same members.

    Example:
        >>> import torch
        >>> now = torch.tensor([[-1.0, -2.0]], requires_grad=True)
        >>> level = token_gradient(
        ...     torch.tensor([[0.5]]),
        ...     Decisions.of(torch.ones(1, 2, dtype=torch.bool), now, now.detach(), torch.ones(1, 2)),
        ... )
        >>> level[0, 0].backward()
        >>> level.tolist(), now.grad.tolist()
        ([[0.5, 0.5]], [[1.0, 0.0]])
    """
    return stop_gradient(log_level) + decisions.log_prob - stop_gradient(decisions.log_prob)


def whole_member(terms: Bool[Tensor, "B T"], decisions: Decisions) -> Bool[Tensor, "B T"]:
    """Every valid decision of the members that have one of these terms with an advantage: where they share one ratio,
    they share its gradient.

    Args:
        terms: `[B, T]` bool, the terms whose surrogate carries gradient.
        decisions: of the same members.

    Example:
        >>> import torch
        >>> now, terms = torch.zeros(2, 2), torch.tensor([[True, False], [False, False]])
        >>> whole_member(terms, Decisions.of(torch.ones(2, 2, dtype=torch.bool), now, now, torch.ones(2, 2))).tolist()
        [[True, True], [False, False]]
    """
    return both(decisions.mask, both(terms, decisions.taught).any(1, keepdim=True))
