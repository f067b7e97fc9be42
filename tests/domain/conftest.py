"""What the tests of several domains share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def quick_collection() -> Iterator[None]:
    """Spares the collector what other tests and libraries have made: where memory runs out it is called at every pass,
    and in a process that has imported everything each call takes half a second.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
