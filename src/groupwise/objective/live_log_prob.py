"""The check of live log-probs: each is finite, and at most 0 unless it is of a density."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.plan import Plan
from groupwise.statistics import ABOVE_ZERO, logical_and


def check_log_prob(log_prob: Float[Tensor, "B T"], plan: Plan) -> None:
    """Refuses live log-probs that no policy gives, on a CPU.

    On another device the check would wait for the device: the loss counts such log-probs there, and the error comes
    when they are logged (`statistics.AboveZero`, `statistics.NotFinite`).

    Args:
        log_prob: `[B, T]` nats, detached.
        plan: the plan of the same members.

    Raises:
        ValueError: a log-prob is not finite at a valid decision, unless the plan counts such decisions; or it lies
            above zero and is not of a density.

    Example:
        >>> import torch
        >>> from groupwise import Objective, Rollouts
        >>> objective, old = Objective.preset("dapo"), torch.full((2, 1), -1.0)
        >>> rollouts = Rollouts(torch.tensor([0, 0]), torch.ones(2, 1, dtype=torch.bool), old, {"right": [1.0, 0.0]})
        >>> check_log_prob(
        ...     torch.tensor([[-1.0], [-torch.inf]]), objective.plan(objective.prepare(rollouts, objective.init()))
        ... )  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: Scored.log_prob[1, 0] is -inf where the mask is true (1 such places; member id 1): ...
    """
    if log_prob.numel() == 0:
        return
    # The usual case takes one pass: the extremes are NaN or infinite where any value is, masked or not.
    lowest, highest = (float(extreme) for extreme in log_prob.aminmax())
    if math.isfinite(lowest) and math.isfinite(highest) and (plan.acted.density or highest <= ABOVE_ZERO):
        return
    finite = log_prob.isfinite()
    broken = logical_and(plan.acted.mask, ~finite)
    if plan.not_finite == "refused" and broken.any():
        member, decision = (int(i) for i in broken.nonzero()[0])
        stable = member if plan.acted.member is None else int(plan.acted.member[member])
        raise ValueError(
            f"Scored.log_prob[{member}, {decision}] is {log_prob[member, decision].item()} where the mask is true"
            f" ({int(broken.sum())} such places; member id {stable}): the model gave no number, or"
            " finds what was sampled impossible. Mask such a decision out, or write objective.plan(...,"
            " not_finite='counted') to leave it out and count it"
        )
    above = logical_and(plan.acted.mask, finite & (log_prob > ABOVE_ZERO))
    if not plan.acted.density and above.any():
        member, decision = (int(i) for i in above.nonzero()[0])
        raise ValueError(
            f"Scored.log_prob[{member}, {decision}] is {log_prob[member, decision].item():.6g}, above zero: a"
            " log-probability is at most 0. Pass log-probs, not probabilities; for densities write Rollouts(...,"
            " density=True)"
        )
