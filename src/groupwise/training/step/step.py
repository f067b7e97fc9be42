"""One step of a stage: what everything in it works with, in one record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from groupwise.domain.base import Domain
from groupwise.objective import Objective
from groupwise.streams import Streams
from groupwise.training.distributed import World
from groupwise.training.job import Recipe
from groupwise.training.step.state import TrainState


@final
@dataclass(frozen=True)
class Step:
    """What collecting, updating and fitting work with; made once a step.

    Args:
        domain: the policy and its data, as the stage sets them.
        recipe: the stage.
        state: of the run, the one thing here that a step changes.
        streams: randomness of the run.
        world: the processes; whatever gathers or sums is called by every one.
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
        """Members of a group now: the number that grew or shrank, where the stage lets it; otherwise the configured
        one.
        """
        train = self.recipe.train
        return (self.state.progress.group_size if train.dynamic_group_size is not None else 0) or train.group_size

    @property
    def fits(self) -> bool:
        """Whether the members of a pass are found by measuring."""
        return self.recipe.train.micro_batch_members == "auto"

    @property
    def members_at_once(self) -> int | None:
        """Members in a pass; `None` takes all. Where they are found by measuring and nothing was measured yet, one."""
        size = self.recipe.train.micro_batch_members
        return (self.state.progress.micro_batch_members or 1) if size == "auto" else size
