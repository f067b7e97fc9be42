"""What prompts earned before: the last rewards of each, kept with the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from groupwise.training.job import Recipe


@final
class RewardHistory:
    """The last `size` rewards (weighted sums) of each prompt, by its place in the training set.

    Every process holds the same: rewards are gathered before they are added.

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
        """Rewards a stage wants remembered of each prompt; 0 where it reads none.

        Args:
            recipe: the stage.
        """
        sizes = [0]
        if "reward_history" in recipe.objective.requires_rollouts:
            sizes.append(recipe.objective.advantage.history_size)
        if recipe.train.adaptive_sampling is not None:
            sizes.append(recipe.train.adaptive_sampling.memory)
        return max(sizes)

    def add(self, earned: Iterable[tuple[int, Sequence[float]]]) -> None:
        """Rewards by prompt, the newest last.

        Args:
            earned: place of a prompt -> rewards of its members.
        """
        for place, values in earned:
            kept = [*self.rewards.get(place, []), *values][-self.size :] if self.size else []
            if kept:
                self.rewards[place] = kept

    def of(self, places: Sequence[int]) -> Tensor:
        """`[B, size]` fp64, the past of each prompt, oldest first, NaN where there is less.

        Args:
            places: `B` prompts, by place in the training set.
        """
        rows = [self.rewards.get(place, [])[-self.size :] if self.size else [] for place in places]
        padded = [[float("nan")] * (self.size - len(row)) + row for row in rows]
        return torch.tensor(padded, dtype=torch.float64).reshape(len(places), self.size)

    def gain(self, earned: Iterable[tuple[int, Sequence[float]]]) -> tuple[float, int]:
        """How far these rewards' means are above their prompts' past, summed, and over how many prompts that have one.

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
        """What a checkpoint keeps."""
        return {"size": self.size, "rewards": {str(place): values for place, values in self.rewards.items()}}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> RewardHistory:
        """The inverse of `record`.

        Args:
            record: what `record` gave.
        """
        return RewardHistory(record["size"], {int(place): values for place, values in record["rewards"].items()})
