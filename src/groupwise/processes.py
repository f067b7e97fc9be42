"""Which of several processes this is, known before any connection and without torch."""

from __future__ import annotations

import os


def is_first_process() -> bool:
    """Whether this process prints and writes: alone, or rank 0 under torchrun.

    Example:
        >>> is_first_process()
        True
    """
    return os.environ.get("RANK", "0") == "0"
