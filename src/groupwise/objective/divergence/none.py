"""No penalty."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.slot import DivergenceSlot
from groupwise.schedule import AnySchedule, Constant


@final
class NoDivergence(DivergenceSlot):
    """`D = 0`: no reference is needed and none is forwarded."""

    beta: ClassVar[AnySchedule] = Constant(value=0.0)
    against: ClassVar[str] = "nothing"
    place: ClassVar[str] = "loss"
    neutral: ClassVar[bool] = True
    kind: Literal["none"] = "none"

    def __call__(
        self, decisions: Decisions, reference_log_prob: Float[Tensor, "B T"], exact: Float[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T"]:
        return decisions.log_prob.new_zeros(decisions.mask.shape)
