"""A running standard deviation as scale: source 001's global statistics, corrected."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from pydantic import Field
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.bounded import bounded
from groupwise.objective.grouped import Grouped
from groupwise.objective.running import Running


@final
class RunningStd(Config):
    """`A_i = (R_i - mean(R)) / max(s, min_std)`, `s` a bias-corrected exponential average of the batch's standard deviation.

    The average includes the batch at hand, so the first batch is scaled by its own. `baseline = "running"` subtracts the running mean instead of
    the group's (source 001's form): it replaces the comparison inside the group by the difficulty of the prompt, and is inferior.

    With the group's baseline, a flat group gives exactly 0. Shift-invariant.

    Source: `--grpo_global_norm` of source 001, whose average never forgets its initial values.
    """

    group_baseline: ClassVar[bool] = True
    kind: Literal["running_std"] = "running_std"
    decay: float = Field(default=0.99, ge=0, lt=1)
    """Weight of the past, per batch of rollouts."""
    baseline: Literal["group", "running"] = "group"
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under the standard deviation, in units of reward."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling (3.0 in source 001)."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Tensor, Running]:
        count, mean, std = rewards.batch_moments(rewards.value)
        if count > 0:
            running = running.follow(float(mean), float(std), self.decay)
        scale = max(running.std, self.min_std)
        if self.baseline == "running":
            scaled = (rewards.value - running.mean) / scale
            return bounded(scaled.where(rewards.present, scaled.new_zeros(())), self.clip), running
        return bounded(rewards.compared((rewards.value - rewards.mean) / scale), self.clip), running
