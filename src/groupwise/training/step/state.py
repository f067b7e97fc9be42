"""What a step works with: the state of a run, with its record for a checkpoint, and the passes of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, final

import torch
from pydantic import TypeAdapter
from torch import Tensor

from groupwise import streams
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Samples
from groupwise.domain.returned import check_scored
from groupwise.learner.protocol import Learner
from groupwise.objective import Objective, ObjectiveState
from groupwise.records import Scored
from groupwise.reference import AbsentReference, EmaReference, ReferenceConfig, ReferencePolicy
from groupwise.streams import Streams
from groupwise.training.distributed import World
from groupwise.training.job import Progress, Recipe
from groupwise.training.step.memory import RewardMemory
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
        memory: what prompts earned lately, and what rewards remember.
    """

    progress: Progress
    objective: ObjectiveState
    learner: Learner
    reference: ReferencePolicy = field(init=False)
    average: ReferencePolicy = field(init=False)
    memory: RewardMemory = field(default_factory=RewardMemory)

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
            "memory": self.memory.record(),
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
            ValueError: the record is of another model, or of an earlier version.
        """
        if "memory" not in record:
            raise ValueError("an earlier Groupwise saved it, which kept its state by other names")
        self.learner.restore(record["learner"])
        self.progress = Progress.from_record(record["progress"])
        self.objective = ObjectiveState.model_validate(record["objective"])
        self.reference.restore(record["reference"])
        self.average = ReferencePolicy(reference_config(record["average"]), self.learner)
        self.average.restore(record["average"])
        self.memory = RewardMemory.from_record(record["memory"])
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


@final
@dataclass(frozen=True)
class Step:
    """Everything that one step works with; made once a step.

    Args:
        domain: the policy and its data, with the stage's settings.
        recipe: the stage with its settings resolved.
        state: the state of the run, the only field that a step changes.
        streams: the random streams of the run.
        world: the processes; every process must call a function that gathers or sums.
    """

    domain: Domain
    recipe: Recipe
    state: TrainState
    streams: Streams
    world: World

    @property
    def objective(self) -> Objective:
        """The stage's objective."""
        return self.recipe.objective

    @property
    def group_size(self) -> int:
        """Present number of members in a group: the one that follows the rewards, where the stage has a dynamic group
        size; otherwise the configured one.
        """
        train = self.recipe.train
        return (self.state.progress.group_size if train.dynamic_group_size is not None else 0) or train.group_size

    @property
    def sharded(self) -> bool:
        """True where the weights are spread over the processes, so that all of them make the same passes."""
        return self.recipe.train.sharding == "full" and self.world.joined

    def score(self, samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
        """Scores members by the domain, and checks what it returned.

        Args:
            samples: as the domain sampled them.
            rows: `[N]`, the members to score.
            requires: names of the fields that are read.

        Raises:
            Fault: a field is missing, or of another shape, dtype or device.
        """
        scored = self.domain.score(samples, rows, requires)
        check_scored("score", scored, _shaped(samples, rows), requires)
        return scored

    def backward(self, samples: Samples, rows: Tensor, cotangents: Scored) -> Scored:
        """Accumulates a gradient by the domain, and checks the fields that it returned.

        Args:
            samples: as the domain sampled them.
            rows: `[N]`, the members to score.
            cotangents: the loss's derivative by each field, `[N, T]`.

        Raises:
            Fault: there is no log-prob, or a field is of another shape, dtype or device.
        """
        scored = self.domain.backward(samples, rows, cotangents)
        check_scored("backward", scored, _shaped(samples, rows))
        return scored

    def passes(self, lengths: Tensor) -> list[Tensor | None]:
        """Returns the members of each pass of this process. Where the weights are spread, all processes make equally
        many passes: one with fewer members gets `None`, a pass that it only joins. Every process must call this method.

        Args:
            lengths: `[B]`, decisions of each member.
        """
        batches: list[Tensor | None] = [*micro_batches(lengths, self.members_at_once)]
        if self.sharded:
            batches += [None] * (self.world.max(len(batches)) - len(batches))
        return batches

    @property
    def measures_pass_size(self) -> bool:
        """True where the number of members in a pass is found by measuring."""
        return self.recipe.train.micro_batch_members == "auto"

    @property
    def members_at_once(self) -> int | None:
        """Members in a pass; `None` takes all. Before a measurement one."""
        size = self.recipe.train.micro_batch_members
        return (self.state.progress.micro_batch_members or 1) if size == "auto" else size


def _shaped(samples: Samples, rows: Tensor) -> Tensor:
    """Returns a view of the shape and device that fields of these members have. Its values say nothing: the members'
    own would be a copy in every pass.
    """
    return samples.mask[:1].expand(len(rows), -1)


def micro_batches(lengths: Tensor, size: int | None) -> list[Tensor]:
    """Returns the rows of each micro-batch, longest members first, so that a batch that does not fit into memory fails
    at once. Neighbours in length stand together, and little is padding.

    Args:
        lengths: `[B]`, valid decisions of each member.
        size: members in a micro-batch; `None` takes all at once.

    Example:
        >>> [rows.tolist() for rows in micro_batches(torch.tensor([3, 9, 1]), 2)]
        [[1, 0], [2]]
    """
    order = torch.argsort(lengths, descending=True, stable=True)
    return list(order.split(size or len(order))) if len(order) else []


@contextmanager
def whole_weights(domain: Domain, world: World) -> Iterator[None]:
    """Gives every process that draws by itself or sends weights the whole of them within the block, unless the domain
    draws with shards, and has the domain send them to a server that the processes share.

    Args:
        domain: of the stage.
        world: the processes; each must enter the block.
    """
    elsewhere = domain.draws_elsewhere
    gathered = domain.learner.gathered(on_cpu=elsewhere, here=not elsewhere or domain.sends_weights)
    with nullcontext() if domain.draws_in_shards else gathered:
        domain.send_weights(world)
        yield
