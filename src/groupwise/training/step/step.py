"""One step of a stage: everything that collecting, measuring and updating work with, in one record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from groupwise.domain.base import Domain
from groupwise.domain.protocol import Samples
from groupwise.domain.returned import check_scored
from groupwise.objective import Objective
from groupwise.records import Scored
from groupwise.streams import Streams
from groupwise.training.distributed import World
from groupwise.training.job import Recipe
from groupwise.training.step.state import TrainState

# Micro-batches of whole members, cut so that neighbours in length stand together and little is padding.


def micro_batches(lengths: Tensor, size: int | None, count: int | None = None) -> list[Tensor]:
    """Returns the rows of each micro-batch, longest members first, so that a batch that does not fit into memory fails
    at once.

    Args:
        lengths: `[B]`, valid decisions of each member.
        size: members in a micro-batch; `None` takes all at once.
        count: number of micro-batches to return; filler replaces missing ones (`-1`, which stands for member 0 with
            weight 0).

    Returns:
        long tensors of rows.

    Example:
        >>> [rows.tolist() for rows in micro_batches(torch.tensor([3, 9, 1]), 2, 3)]
        [[1, 0], [2], [-1]]
    """
    order = torch.argsort(lengths, descending=True, stable=True)
    batches = list(order.split(size or max(1, len(order)))) if len(order) else []
    filler = torch.full((1,), -1, dtype=torch.long, device=lengths.device)
    return batches + [filler] * max(0, (count or 0) - len(batches))


def num_micro_batches(num_members: int, size: int | None) -> int:
    """Returns the number of micro-batches of so many members.

    Example:
        >>> num_micro_batches(5, 2), num_micro_batches(5, None), num_micro_batches(0, 2)
        (3, 1, 0)
    """
    return -(-num_members // (size or max(1, num_members)))


# The whole weights that sampling and an evaluation need, and their way to a server that draws with them.


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
