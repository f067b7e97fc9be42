"""The state of a run, with its record for a checkpoint."""

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
from groupwise.training.step.prompt_values import PromptValues
from groupwise.training.step.reward_history import RewardHistory
from groupwise.training.weight_average import WeightAverage


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
