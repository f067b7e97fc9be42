"""Whitening over the whole batch, with or without the group's mean first (REINFORCE++)."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.bounded import bounded
from groupwise.objective.grouped import Grouped
from groupwise.objective.running import Running
from groupwise.objective.slot import AdvantageSlot


@final
class Whiten(AdvantageSlot):
    """`A_i = (x_i - mean(x)) / max(std(x), min_std)` over all members of the batch, `x = R`, or `x = R - mean_group(R)`
    with `baseline = "group"`.

    Global over processes, taken before sharding. With a group baseline a flat group is forced to 0 afterwards; without
    one the batch is the comparison, a flat *batch* gives exactly 0, and a flat group keeps what the others make of it.

    Example:
        Mean 1/2, standard deviation `1/sqrt(3) = 0.577`.

        >>> advantage, _ = Whiten()(Grouped.of([1.0, 0.0], [1.0, 0.0]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [0.866, -0.866, 0.866, -0.866]

    Source: REINFORCE++, arXiv 2501.03262, section 3 (its baseline form: section 3.3).
    """

    kind: Literal["whiten"] = "whiten"
    baseline: Literal["none", "group"] = "none"
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under the standard deviation, in units of reward."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling."""

    @property
    def group_baseline(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True when members are compared inside their group first."""
        return self.baseline == "group"

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        # The mean of equal numbers rounds; what it leaves of them is a few units in the last place, whose sum and mean
        # are exact, so that a flat batch gives 0.
        level = rewards.mean if self.baseline == "group" else rewards.batch_moments(rewards.value)[1]
        value = rewards.value - level
        _, mean, std = rewards.batch_moments(value)
        scaled = (value - mean) / std.clamp(min=self.min_std)
        whitened = (
            rewards.compared(scaled)
            if self.baseline == "group"
            else scaled.where(rewards.present, scaled.new_zeros(()))
        )
        return bounded(whitened, self.clip), running
