"""A running standard deviation as scale: source 001's global statistics, corrected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, final

from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from groupwise.objective.bounded import bounded
from groupwise.objective.grouped import Grouped
from groupwise.objective.running import Running
from groupwise.objective.slot import AdvantageSlot

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective


@final
class RunningStd(AdvantageSlot):
    """`A_i = (R_i - mean(R)) / max(s, min_std)`, `s` a bias-corrected exponential average of the batch's standard
    deviation.

    The average includes the batch at hand, so the first batch is scaled by its own. `baseline = "running"` subtracts
    the running mean instead of the group's (source 001's form): it replaces the comparison inside the group by the
    difficulty of the prompt, and is inferior.

    Over prompts of unlike difficulty the rewards' standard deviation is mostly that of the prompts, and advantages
    inside a group are then far below 1; `of = "advantage"` follows the standard deviation of the centred rewards
    instead, under which they have mean 0 and standard deviation about 1.

    With the group's baseline, a flat group gives exactly 0. Shift-invariant.

    Example:
        The first batch is scaled by its own standard deviation, 0.408.

        >>> advantage, _ = RunningStd()(Grouped.of([1.0, 0.0], [0.5, 0.5]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [1.225, -1.225, 0.0, 0.0]

    Source: `--grpo_global_norm` of source 001, whose average never forgets its initial values.
    """

    kind: Literal["running_std"] = "running_std"
    decay: float = Field(default=0.99, ge=0, lt=1)
    """Weight of the past, per batch of rollouts."""
    baseline: Literal["group", "running"] = "group"
    of: Literal["reward", "advantage"] = "reward"
    """The standard deviation that scales: the rewards' (source 001), or that of the rewards less their group's mean."""
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under the standard deviation, in units of reward."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling (3.0 in source 001)."""

    @model_validator(mode="after")
    def _one_baseline(self) -> RunningStd:
        if self.of == "advantage" and self.baseline == "running":
            raise ValueError(
                'of = "advantage" is the spread around the group\'s mean, and baseline = "running" subtracts another'
                ' one; write baseline = "group"'
            )
        return self

    def advises(self, objective: Objective) -> Iterator[str]:
        """Yields what a running baseline compares with."""
        if self.baseline == "running":
            yield (
                "advantage.baseline = 'running' replaces the comparison inside a group by the difficulty of its prompt"
            )

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        centred = rewards.value - rewards.mean
        count, mean, std = rewards.batch_moments(rewards.value)
        if count > 0:
            centred_std = rewards.batch_moments(rewards.compared(centred))[2]
            running = running.follow(float(mean), float(std), float(centred_std), self.decay)
        scale = max(running.std if self.of == "reward" else running.centred_std, self.min_std)
        if self.baseline == "running":
            scaled = (rewards.value - running.mean) / scale
            return bounded(scaled.where(rewards.present, scaled.new_zeros(())), self.clip), running
        return bounded(rewards.compared(centred / scale), self.clip), running
