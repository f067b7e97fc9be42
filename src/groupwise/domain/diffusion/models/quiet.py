"""Loading and saving without the progress bars and the advice of the libraries, which would stand between this
project's own lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet() -> Iterator[None]:
    """Silences diffusers and transformers within the block: no progress, errors only; afterwards their settings are
    restored.
    """
    from diffusers.utils import logging as of_diffusers
    from transformers.utils import logging as of_transformers

    loggers: tuple[Any, ...] = (of_diffusers, of_transformers)
    settings = [(logger, logger.get_verbosity(), logger.is_progress_bar_enabled()) for logger in loggers]
    for logger in loggers:
        logger.set_verbosity_error()
        logger.disable_progress_bar()
    try:
        yield
    finally:
        for logger, verbosity, had_progress_bar in settings:
            logger.set_verbosity(verbosity)
            if had_progress_bar:
                logger.enable_progress_bar()
