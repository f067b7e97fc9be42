"""The whole weights that sampling and an evaluation need, and their way to a server that draws with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from groupwise.domain.base import Domain
from groupwise.training.distributed import World


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
