"""The whole weights that sampling and an evaluation need."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from groupwise.domain.base import Domain


def whole_weights(domain: Domain) -> AbstractContextManager[None]:
    """Gives every process the whole weights within the block, unless the domain draws with shards of them.

    Args:
        domain: of the stage; every process must enter the block.
    """
    if domain.draws_in_shards:
        return nullcontext()
    return domain.learner.gathered(on_cpu=True) if domain.draws_elsewhere else domain.learner.gathered()
