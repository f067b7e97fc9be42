"""One step of a stage: everything that collecting, measuring and updating work with, in one record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor

from groupwise.domain.base import Domain
from groupwise.domain.protocol import Samples
from groupwise.domain.returned import check_scored
from groupwise.objective import Objective
from groupwise.records import Scored
from groupwise.streams import Streams
from groupwise.training.distributed import World
from groupwise.training.job import Recipe
from groupwise.training.step.micro_batches import micro_batches, num_micro_batches
from groupwise.training.step.state import TrainState


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

    def passes(self, lengths: Tensor) -> list[Tensor]:
        """Returns the members of each pass of this process. Where the weights are spread, a process with fewer passes
        than another gets fillers (`-1`); every process must call this method.

        Args:
            lengths: `[B]`, decisions of each member.
        """
        size = self.members_at_once
        count = self.world.max(num_micro_batches(len(lengths), size)) if self.sharded else None
        return micro_batches(lengths, size, count)

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
