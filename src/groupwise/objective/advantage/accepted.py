"""One for a member that the reward accepts, zero for the others: rejection sampling."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.grouped import Grouped
from groupwise.objective.running import Running
from groupwise.objective.slot import AdvantageSlot


@final
class Accepted(AdvantageSlot):
    """`A_i = 1[R_i > threshold]`, no comparison inside the group: with `S = A lp` this is supervised training on
    accepted samples.

    Not shift-invariant, and a flat group of accepted members keeps its ones.

    Example:
        >>> advantage, _ = Accepted()(Grouped.of([1.0, 0.0], [1.0, 1.0]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [1.0, 0.0, 1.0, 1.0]

    Source: the control that every comparison needs (RAFT, arXiv 2304.06767).
    """

    group_baseline: ClassVar[bool] = False
    kind: Literal["accepted"] = "accepted"
    threshold: float = 0.5
    """Rewards above it are accepted."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        return ((rewards.value > self.threshold) & rewards.present).to(rewards.value.dtype), running
