"""The gradient of a member's ratio: each decision's own (the token form), or one that all decisions share."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.stop_gradient import stop_gradient
from groupwise.statistics import logical_and


def token_gradient(log_level: Float[Tensor, "B K"], decisions: Decisions) -> Float[Tensor, "B T"]:
    """Returns `log rho_t = sg(log rho) + lp_t - sg(lp_t)` (GSPO-token, arXiv 2507.18071, equation 14), `[B, T]` from
    `[B, 1]`.

    Args:
        log_level: `[B, 1]` nats, the member's.
        decisions: of the same members.

    Example:
        >>> import torch
        >>> log_prob = torch.tensor([[-1.0, -2.0]], requires_grad=True)
        >>> level = token_gradient(
        ...     torch.tensor([[0.5]]),
        ...     Decisions.of(torch.ones(1, 2, dtype=torch.bool), log_prob, log_prob.detach(), torch.ones(1, 2)),
        ... )
        >>> level[0, 0].backward()
        >>> level.tolist(), log_prob.grad.tolist()
        ([[0.5, 0.5]], [[1.0, 0.0]])
    """
    return stop_gradient(log_level) + decisions.log_prob - stop_gradient(decisions.log_prob)


def whole_member(terms: Bool[Tensor, "B T"], decisions: Decisions) -> Bool[Tensor, "B T"]:
    """Returns all valid decisions of the members that have one of the terms with an advantage: decisions that share a
    ratio share its gradient.

    Args:
        terms: `[B, T]` bool, the terms whose surrogate carries gradient.
        decisions: of the same members.

    Example:
        >>> import torch
        >>> log_prob, terms = torch.zeros(2, 2), torch.tensor([[True, False], [False, False]])
        >>> whole_member(
        ...     terms, Decisions.of(torch.ones(2, 2, dtype=torch.bool), log_prob, log_prob, torch.ones(2, 2))
        ... ).tolist()
        [[True, True], [False, False]]
    """
    return logical_and(decisions.mask, logical_and(terms, decisions.taught).any(1, keepdim=True))
