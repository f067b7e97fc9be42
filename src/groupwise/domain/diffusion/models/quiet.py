"""Loading and saving without the progress bars and the advice of the libraries, which would stand between this
project's own lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet() -> Iterator[None]:
    """Within the block diffusers and transformers show no progress and log errors only; afterwards they are as they
    were.
    """
    from diffusers.utils import logging as of_diffusers
    from transformers.utils import logging as of_transformers

    rooms: tuple[Any, ...] = (of_diffusers, of_transformers)
    before = [(room, room.get_verbosity(), room.is_progress_bar_enabled()) for room in rooms]
    for room in rooms:
        room.set_verbosity_error()
        room.disable_progress_bar()
    try:
        yield
    finally:
        for room, verbosity, shown in before:
            room.set_verbosity(verbosity)
            if shown:
                room.enable_progress_bar()
