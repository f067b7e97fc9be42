"""No matching: the policy learns from the log-probs of the decisions that sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.deviation import Deviation
from groupwise.objective.slot import MatchingSlot


@final
class NoMatching(MatchingSlot):
    """Leaves the decisions as they are: no copies are noised."""

    neutral: ClassVar[bool] = True
    deterministic: ClassVar[bool] = False
    kind: Literal["none"] = "none"

    def __call__(self, deviation: Deviation) -> Mapping[str, Float[Tensor, " N"]]:
        return {}
