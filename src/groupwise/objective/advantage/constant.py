"""The reward less a number."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.bounded import bounded
from groupwise.objective.grouped import Grouped
from groupwise.objective.running import Running
from groupwise.objective.slot import AdvantageSlot


@final
class ConstantBaseline(AdvantageSlot):
    """`A_i = R_i - value`: no comparison inside the group, so a flat group keeps its advantage and neither shift nor
    scale is forgiven.

    Example:
        >>> advantage, _ = ConstantBaseline(value=0.5)(Grouped.of([1.0, 0.0], [1.0, 1.0]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [0.5, -0.5, 0.5, 0.5]

    Source: TOPR, arXiv 2503.14286, section 4 (the baseline sets the effective share of positives).
    """

    group_baseline: ClassVar[bool] = False
    kind: Literal["constant"] = "constant"
    value: float = 0.0
    """The baseline, in units of reward."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        centred = rewards.value - self.value
        return bounded(centred.where(rewards.present, centred.new_zeros(())), self.clip), running
