"""Everything that changes while a run goes on, and its way into a checkpoint and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, final

from pydantic import TypeAdapter

from groupwise import streams
from groupwise.learner.protocol import Learner
from groupwise.objective import ObjectiveState
from groupwise.reference import AbsentReference, EmaReference, ReferenceConfig
from groupwise.reference.policy import ReferencePolicy
from groupwise.training.distributed import World
from groupwise.training.progress import Progress
from groupwise.training.step.reward_history import RewardHistory
from groupwise.training.weight_average import WeightAverage


@final
@dataclass
class TrainState:
    """The state of a run.

    Args:
        progress: counters.
        objective: the objective's own state.
        learner: the owner of weights and optimiser.
        reference: the reference policy; none before a stage begins.
        average: the running average of its weights, absent where none is kept.
        history: what prompts earned before, empty where nothing reads it.
        reward_memory: what rewards remember of what they saw, by name, JSON-able; empty where none does.
    """

    progress: Progress
    objective: ObjectiveState
    learner: Learner
    reference: ReferencePolicy = field(init=False)
    average: ReferencePolicy = field(init=False)
    history: RewardHistory = field(default_factory=RewardHistory)
    reward_memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reference = self.average = ReferencePolicy(AbsentReference(), self.learner)

    def begin_average(self, config: WeightAverage | None) -> None:
        """Begins an average at the weights as they are, ends it, or goes on with the one that is kept already.

        Args:
            config: of the stage that begins.
        """
        if (config is not None) != self.average.present:
            self.average = ReferencePolicy(AbsentReference() if config is None else EmaReference(), self.learner)
            self.progress.average_step = 0

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within the block the policy has its averaged weights, where an average is kept."""
        with self.average.active() if self.average.present else nullcontext():
            yield

    def record(self, world: World, metrics_length: int) -> dict[str, Any]:
        """Everything a bit-exact resume needs, from all processes; every process must call it.

        Args:
            world: the processes; each has random generators of its own (dropout).
            metrics_length: bytes of `metrics.jsonl` that belong to it.
        """
        return {
            "progress": self.progress.record(),
            "objective": self.objective.model_dump(mode="json"),
            "learner": self.learner.record(),
            "reference": {**self.reference.state(), "config": self.reference.config.model_dump(mode="json")},
            "average": {**self.average.state(), "config": self.average.config.model_dump(mode="json")},
            "history": self.history.record(),
            "reward_memory": self.reward_memory,
            "generators": world.gather(streams.capture()),
            "metrics_length": metrics_length,
        }

    def restore(self, record: Mapping[str, Any], world: World) -> None:
        """Takes a record back. The reference must be of the record's kind already.

        The global generators (dropout) come back only where the record is of as many processes; of another number it
        resumes, not bit for bit.

        Args:
            record: what `record` gave.
            world: the processes now.

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
        self.reward_memory = dict(record["reward_memory"])
        if len(record["generators"]) == world.size:
            streams.restore(record["generators"][world.rank])


def reference_config(record: Mapping[str, Any]) -> ReferenceConfig:
    """The kind of reference that a record's reference is of.

    Args:
        record: what a checkpoint keeps of a reference.

    Example:
        >>> reference_config({"config": {"kind": "frozen"}}).kind
        'frozen'
    """
    return TypeAdapter(ReferenceConfig).validate_python(record["config"])
