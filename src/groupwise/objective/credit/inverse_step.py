"""Credit by the inverse of a transition's step size: what a large step would otherwise gain."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.slot import CreditSlot
from groupwise.statistics import Statistic


@final
class InverseStep(CreditSlot):
    """`c_t ~ 1 / dt_t` over a member's valid decisions, normalised to mean one, or as it is with `raw`.

    The mean of a denoising transition moves by the model's output times its step `dt`, so does its gradient; divided by
    `dt` all steps push alike. The steps are `Rollouts.step_size`, all positive. A member of one decision has credit 1
    unless `raw`.

    Example:
        `1/dt` is 1, 2, 4, mean 7/3.

        >>> import torch
        >>> zeros, steps = torch.zeros(1, 3), torch.tensor([[1.0, 0.5, 0.25]])
        >>> decisions = Decisions.of(torch.ones(1, 3, dtype=torch.bool), zeros, zeros, zeros, step_size=steps)
        >>> [round(value, 3) for value in InverseStep()(decisions)[0].tolist()]
        [0.429, 0.857, 1.714]

    Source: GRPO-Guard, arXiv 2510.22319, equation 12 for Flow-GRPO's noise (`raw`).
    """

    kind: ClassVar[str] = "inverse_step"
    reads: ClassVar[frozenset[str]] = frozenset({"step_size"})
    raw: bool = False
    """Leave the weights unnormalised."""

    @property
    def normalised(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True unless `raw`."""
        return not self.raw

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        assert decisions.acted.step_size is not None
        unit_step = torch.ones((), dtype=decisions.acted.step_size.dtype, device=decisions.acted.step_size.device)
        weight = decisions.masked(1 / torch.where(decisions.mask, decisions.acted.step_size, unit_step))
        if self.raw:
            return weight
        mean = decisions.mean(weight)
        return weight / torch.where(mean > 0, mean, torch.ones_like(mean))

    def measure(self, weight: Float[Tensor, "B T"], decisions: Decisions) -> dict[str, Statistic]:
        """Returns `inverse_step/mean_weight`."""
        return {"inverse_step/mean_weight": decisions.average(weight)}
