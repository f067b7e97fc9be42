"""The whole weights that sampling and an evaluation need, and their way to a server that draws with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from groupwise.domain.base import Domain
from groupwise.training.distributed import World


@contextmanager
def whole_weights(domain: Domain, world: World) -> Iterator[None]:
    """Gives every process the whole weights within the block, unless the domain draws with shards of them, and has the
    domain send them to a server that the processes share.

    Args:
        domain: of the stage.
        world: the processes; each must enter the block.
    """
    with nullcontext() if domain.draws_in_shards else domain.learner.gathered(on_cpu=domain.draws_elsewhere):
        domain.send_weights(world)
        yield
