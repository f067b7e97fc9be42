"""The last rewards of each prompt, saved with the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from groupwise.training.job import Recipe


@final
class RewardHistory:
    """The last `size` rewards (weighted sums) of each prompt, by its place in the training set.

    All processes hold the same rewards: they are gathered before they are added.

    Example:
        >>> history = RewardHistory(size=3)
        >>> history.add([(7, [0.0, 1.0]), (2, [5.0])])
        >>> history.add([(7, [2.0, 3.0])])
        >>> history.rewards
        {7: [1.0, 2.0, 3.0], 2: [5.0]}
        >>> history.of([2, 7, 4]).tolist()
        [[nan, nan, 5.0], [1.0, 2.0, 3.0], [nan, nan, nan]]
    """

    def __init__(self, size: int = 0, rewards: Mapping[int, Sequence[float]] | None = None) -> None:
        self.size = size
        self.rewards: dict[int, list[float]] = {place: list(values) for place, values in (rewards or {}).items()}

    @staticmethod
    def needed(recipe: Recipe) -> int:
        """Returns the number of rewards that a stage reads of each prompt's past; 0 where it reads none."""
        sizes = [0]
        if "reward_history" in recipe.objective.requires_rollouts:
            sizes.append(recipe.objective.advantage.history_size)
        if recipe.train.adaptive_sampling is not None:
            sizes.append(recipe.train.adaptive_sampling.memory)
        if recipe.train.worst_first is not None:
            sizes.append(recipe.train.worst_first.memory)
        return max(sizes)

    def add(self, earned: Iterable[tuple[int, Sequence[float]]]) -> None:
        """Adds rewards to the prompts' pasts, the newest last.

        Args:
            earned: place of a prompt -> rewards of its members.
        """
        for place, values in earned:
            newest = [*self.rewards.get(place, []), *values][-self.size :] if self.size else []
            if newest:
                self.rewards[place] = newest

    def of(self, places: Sequence[int]) -> Tensor:
        """Returns `[B, size]` fp64, the past of each prompt, oldest first, NaN where the past is shorter.

        Args:
            places: `B` prompts, by place in the training set.
        """
        rows = [self.rewards.get(place, [])[-self.size :] if self.size else [] for place in places]
        padded = [[float("nan")] * (self.size - len(row)) + row for row in rows]
        return torch.tensor(padded, dtype=torch.float64).reshape(len(places), self.size)

    def gain(self, earned: Iterable[tuple[int, Sequence[float]]]) -> tuple[float, int]:
        """Returns how far the means of these rewards are above the means of their prompts' pasts, as a sum over
        prompts, and the number of prompts with a past.

        Args:
            earned: place of a prompt -> rewards of its members.
        """
        total, count = 0.0, 0
        for place, values in earned:
            past = self.rewards.get(place)
            if past and values:
                total += sum(values) / len(values) - sum(past) / len(past)
                count += 1
        return total, count

    def record(self) -> dict[str, Any]:
        """Returns plain values for a checkpoint."""
        return {"size": self.size, "rewards": {str(place): values for place, values in self.rewards.items()}}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> RewardHistory:
        """Restores a history from the values of `record`.

        Args:
            record: the return value of the method `record`.
        """
        return RewardHistory(record["size"], {int(place): values for place, values in record["rewards"].items()})
