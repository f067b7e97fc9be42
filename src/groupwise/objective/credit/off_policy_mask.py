"""No gradient from bad members that the policy has already left."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.slot import CreditSlot
from groupwise.objective.stop_gradient import stop_gradient
from groupwise.statistics import Statistic, as_float


@final
class OffPolicyMask(CreditSlot):
    """`c_t = 0` for every decision of a member where `A_t < 0` and `mean_s(lp_behaviour_s - lp_s) > threshold`, and 1
    elsewhere.

    The mean goes over the member's valid decisions, in nats a decision. `lp_behaviour` is what the sampler recorded,
    and `lp_old` where the sampler is the policy itself.

    Example:
        Two bad members: the first fell by 0.5 nats a decision, the second by 0.1.

        >>> import torch
        >>> old, advantage = torch.zeros(2, 2), torch.full((2, 2), -1.0)
        >>> live = torch.tensor([[-0.5, -0.5], [-0.2, 0.0]])
        >>> OffPolicyMask(threshold=0.3)(
        ...     Decisions.of(torch.ones(2, 2, dtype=torch.bool), live, old, advantage)
        ... ).tolist()
        [[0.0, 0.0], [1.0, 1.0]]

    Source: off-policy sequence masking of DeepSeek-V3.2, arXiv 2512.02556.
    """

    kind: ClassVar[str] = "off_policy_mask"
    masks: ClassVar[bool] = True
    uses: ClassVar[frozenset[str]] = frozenset({"behaviour_log_prob"})
    threshold: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    """The largest mean fall of the log-prob, in nats a decision, at which a bad member still trains."""

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        recorded = decisions.acted.behaviour_log_prob
        sampled = decisions.acted.old_log_prob if recorded is None else recorded
        fall = decisions.mean(sampled - stop_gradient(decisions.log_prob))
        dropped = decisions.bad & (fall > self.threshold)
        return as_float(decisions.mask & ~dropped, decisions.log_prob.dtype)

    def measure(self, weight: Float[Tensor, "B T"], decisions: Decisions) -> dict[str, Statistic]:
        """Returns the share of valid decisions that the mask drops: `off_policy_mask/dropped_mean`."""
        return {"off_policy_mask/dropped_mean": decisions.share(lambda: torch.eq(weight, 0))}
