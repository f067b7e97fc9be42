"""Statistics of a prompt's own past: the tracker of DDPO, which source 002 keeps beside its group statistics."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.config.numbers import PerStep
from groupwise.objective.bounded import bounded
from groupwise.objective.grouped import Grouped
from groupwise.objective.running import Running
from groupwise.objective.slot import AdvantageSlot


@final
class PerPrompt(AdvantageSlot):
    """`A_i = (R_i - mean(H)) / max(std(H), min_std)`, `H` the last `buffer_size` rewards of the member's prompt, those
    of its own group included.

    A prompt seen fewer than `min_count` times takes mean and standard deviation of the whole batch instead. `baseline =
    "group"` subtracts the group's mean and keeps the prompt's scale: a flat group then gives exactly 0. With `baseline
    = "prompt"` it does not: a group that is better than its prompt's past is reinforced as a whole. Shift-invariant
    where the past is shifted as well.

    The past is given (`Rollouts.reward_history`) and not remembered here: the trainer keeps it, in its checkpoints.
    Without one, only the batch counts.

    Example:
        A prompt's past 0, 0, 1, 1 (`min_count = 4`) and now a reward of 3: `H` has mean 1 and standard deviation
        `sqrt(1.2)`; the advantage is `2 / sqrt(1.2)`.

    Source: `PerPromptStatTracker` of DDPO, arXiv 2305.13301, and of source 002. A group larger than the buffer counts
    whole there and here, in any order of its members; the floor `min_std` stands where their code adds 1e-6.
    """

    reads: ClassVar[frozenset[str]] = frozenset({"reward_history"})
    whole_member: ClassVar[bool] = True
    kind: Literal["per_prompt"] = "per_prompt"
    buffer_size: Annotated[PerStep, Field(ge=2)] = 16
    """Rewards remembered of each prompt."""
    min_count: Annotated[PerStep, Field(ge=2)] = 16
    """Rewards from which on a prompt has statistics of its own."""
    baseline: Literal["prompt", "group"] = "prompt"
    ddof: Literal[0, 1] = 0
    """0 for the population's standard deviation, as in the source; 1 for the unbiased one."""
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under the standard deviation, in units of reward."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling (5.0 in DDPO's code)."""

    @property
    def history_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Rewards remembered of each prompt."""
        return self.buffer_size

    @property
    def group_baseline(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True when members are compared inside their group."""
        return self.baseline == "group"

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        _, batch_mean, batch_std = rewards.batch_moments(rewards.value, self.ddof)
        past, in_buffer = self._past(rewards)
        count = rewards.size + in_buffer.sum(1, keepdim=True)
        mean = (rewards.sum(rewards.value) + torch.where(in_buffer, past, 0.0).sum(1, keepdim=True)) / count.clamp(
            min=1
        )
        squares = rewards.sum((rewards.value - mean).square()) + torch.where(
            in_buffer, (past - mean).square(), 0.0
        ).sum(1, keepdim=True)
        std = (squares / (count - self.ddof).clamp(min=1)).sqrt()
        enough = count >= self.min_count
        scale = torch.where(enough, std, batch_std).clamp(min=self.min_std)
        if self.baseline == "group":
            return bounded(rewards.compared((rewards.value - rewards.mean) / scale), self.clip), running
        scaled = (rewards.value - torch.where(enough, mean, batch_mean)) / scale
        return bounded(scaled.where(rewards.present, scaled.new_zeros(())), self.clip), running

    def _past(self, rewards: Grouped) -> tuple[Tensor, Tensor]:
        """Returns `[B, H]` the prompt's past, and which of it the buffer still holds beside the group."""
        if rewards.value.shape[1] > 1:
            raise ValueError(
                "advantage.kind = 'per_prompt' remembers one number a member, and a reward is a map [B, T]; write"
                " another advantage.kind"
            )
        if rewards.history is None or rewards.history.shape[1] == 0:
            empty = rewards.value[:, :0]
            return empty, empty.bool()
        recorded = rewards.history.isfinite()
        # The newest rewards stand last: the buffer still holds a reward where few enough recorded rewards follow it.
        age = recorded.flip(1).cumsum(1).flip(1)
        return rewards.history, recorded & (age <= (self.buffer_size - rewards.size).clamp(min=0))
