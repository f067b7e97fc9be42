"""The state of a run, with its record for a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, final

import torch
from pydantic import TypeAdapter
from torch import Tensor

from groupwise import streams
from groupwise.learner.protocol import Learner
from groupwise.objective import ObjectiveState
from groupwise.reference import AbsentReference, EmaReference, ReferenceConfig, ReferencePolicy
from groupwise.training.distributed import World
from groupwise.training.job import Progress, Recipe
from groupwise.training.weight_average import WeightAverage

_VISITS = 3
"""Draws of a prompt before it is counted."""
_NEAR = 1e-9


@final
class PromptValues:
    """How often each prompt of a stage was drawn, and the one value that all its members earned.

    All processes hold the same values: they are gathered before they are added.

    Example:
        >>> values = PromptValues()
        >>> for step in range(3):
        ...     values.add([(7, [0.0, 0.0]), (2, [0.0, float(step)])])
        >>> values.metrics()
        {'prompts/revisited': 2.0, 'prompts/one_value': 0.5}
    """

    def __init__(self, values: Mapping[int, tuple[int, float | None]] | None = None) -> None:
        self._values: dict[int, tuple[int, float | None]] = dict(values or {})
        counted = [value for visits, value in self._values.values() if visits >= _VISITS]
        self._num_revisited, self._num_single = len(counted), sum(value is not None for value in counted)

    def add(self, earned: Iterable[tuple[int, Sequence[float]]]) -> None:
        """Adds the rewards of a step.

        Args:
            earned: place of a prompt -> rewards of its members, in one entry a draw.
        """
        for place, rewards in earned:
            if not rewards:
                continue
            visits, value = self._values.get(place, (0, rewards[0]))
            if visits >= _VISITS:
                self._num_revisited, self._num_single = self._num_revisited - 1, self._num_single - (value is not None)
            if value is not None and any(abs(reward - value) > _NEAR * max(1.0, abs(value)) for reward in rewards):
                value = None
            self._values[place] = visits + 1, value
            if visits + 1 >= _VISITS:
                self._num_revisited, self._num_single = self._num_revisited + 1, self._num_single + (value is not None)

    def metrics(self) -> dict[str, float]:
        """Returns how many prompts were drawn three times or more, and the share of them that earned one value alone;
        nothing before there is one.
        """
        if not self._num_revisited:
            return {}
        return {
            "prompts/revisited": float(self._num_revisited),
            "prompts/one_value": self._num_single / self._num_revisited,
        }

    def record(self) -> dict[str, Any]:
        """Returns plain values for a checkpoint."""
        return {str(place): list(entry) for place, entry in self._values.items()}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> PromptValues:
        """Restores the values of `record`.

        Args:
            record: the return value of the method `record`.

        Example:
            >>> values = PromptValues({7: (3, 0.5)})
            >>> PromptValues.from_record(values.record()).metrics() == values.metrics()
            True
        """
        return PromptValues({int(place): (int(visits), value) for place, (visits, value) in record.items()})


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


@final
@dataclass
class TrainState:
    """The state of a run.

    Args:
        progress: counters of the run.
        objective: state of the objective.
        learner: the owner of weights and optimiser.
        reference: the reference policy; absent before a stage begins.
        average: the running average of the weights; absent where the stage keeps none.
        history: the last rewards of each prompt; empty where nothing reads them.
        prompt_values: which prompts of the stage have earned one value alone.
        reward_memory: the memories of rewards, by reward, JSON-able; empty where no reward has one.
    """

    progress: Progress
    objective: ObjectiveState
    learner: Learner
    reference: ReferencePolicy = field(init=False)
    average: ReferencePolicy = field(init=False)
    history: RewardHistory = field(default_factory=RewardHistory)
    prompt_values: PromptValues = field(default_factory=PromptValues)
    reward_memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reference = ReferencePolicy(AbsentReference(), self.learner)
        self.average = ReferencePolicy(AbsentReference(), self.learner)

    def begin_average(self, config: WeightAverage | None) -> None:
        """Begins an average at the present weights, ends it, or goes on with the present average.

        Args:
            config: the average of the stage that begins; `None` where it has none.
        """
        if (config is not None) != self.average.present:
            self.average = ReferencePolicy(AbsentReference() if config is None else EmaReference(), self.learner)
            self.progress.average_step = 0

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Gives the policy its averaged weights within the block, where an average is kept."""
        with self.average.active() if self.average.present else nullcontext():
            yield

    def record(self, world: World, metrics_length: int) -> dict[str, Any]:
        """Returns everything that a bit-exact resume needs, from all processes; every process must call it.

        Args:
            world: the processes, of which each has its own random generators (dropout).
            metrics_length: bytes of `metrics.jsonl` up to this state.
        """
        return {
            "progress": self.progress.record(),
            "objective": self.objective.model_dump(mode="json"),
            "learner": self.learner.record(),
            "reference": {**self.reference.state(), "config": self.reference.config.model_dump(mode="json")},
            "average": {**self.average.state(), "config": self.average.config.model_dump(mode="json")},
            "history": self.history.record(),
            "prompt_values": self.prompt_values.record(),
            "reward_memory": self.reward_memory,
            "generators": world.gather(streams.capture()),
            "metrics_length": metrics_length,
        }

    def restore(self, record: Mapping[str, Any], world: World) -> None:
        """Restores a record. The reference must be of the record's kind already.

        The global generators (dropout) are restored only where the number of processes is that of the record; with
        another number the run resumes, but not bit for bit.

        Args:
            record: the values of `record`.
            world: the processes of this start.

        Raises:
            ValueError: the record is of another model, or of a version without learners.
        """
        if "learner" not in record:
            raise ValueError("an earlier Groupwise saved it, which kept weights and optimiser by other names")
        self.learner.restore(record["learner"])
        self.progress = Progress.from_record(record["progress"])
        self.objective = ObjectiveState.model_validate(record["objective"])
        self.reference.restore(record["reference"])
        self.average = ReferencePolicy(reference_config(record["average"]), self.learner)
        self.average.restore(record["average"])
        self.history = RewardHistory.from_record(record["history"])
        self.prompt_values = PromptValues.from_record(record.get("prompt_values", {}))
        self.reward_memory = dict(record["reward_memory"])
        if len(record["generators"]) == world.size:
            streams.restore(record["generators"][world.rank])


def reference_config(record: Mapping[str, Any]) -> ReferenceConfig:
    """Returns the configuration of the reference that a record holds.

    Args:
        record: the entry of a reference in a checkpoint.

    Example:
        >>> reference_config({"config": {"kind": "frozen"}}).kind
        'frozen'
    """
    return TypeAdapter(ReferenceConfig).validate_python(record["config"])
