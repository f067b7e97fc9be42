"""A method of a user's domain that raises: one line that names the class, the method and the line of its code."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.config import ConfigError, why_failed
from groupwise.processes import is_out_of_memory
from groupwise.reward import RewardError

if TYPE_CHECKING:
    from groupwise.domain.base import Domain


@contextmanager
def calling(domain: Domain, method: str) -> Iterator[None]:
    """Names the method in which a user's domain fails; the original error is the cause of the new one.

    What a domain of this package raises stays as it is, and so do errors that name their remedy, and memory that ran
    out.

    Args:
        domain: whose method is called in the block.
        method: its name.

    Raises:
        ConfigError: the method raised.

    Example:
        >>> mine = type("Mine", (), {"__module__": "mine"})()
        >>> with calling(mine, "evaluate"):
        ...     {}["score"]
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: domain: Mine.evaluate raised KeyError: 'score'
    """
    try:
        yield
    except (ConfigError, RewardError):
        raise
    # A user's code may fail in any way.
    except Exception as error:
        if is_out_of_memory(error) or type(domain).__module__.partition(".")[0] == __name__.partition(".")[0]:
            raise
        called = f"domain: {type(domain).__name__}.{method} raised {why_failed(error)}{_own_line(domain, error)}"
        raise ConfigError(called) from error


def _own_line(domain: Domain, error: Exception) -> str:
    """Returns the last line of the class's own file that ran, where the error was raised below it, in a library."""
    try:
        own = Path(inspect.getfile(type(domain)))
    except (OSError, TypeError):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if Path(frame.filename) == own]
    return f", called at {own.name}:{lines[-1].lineno}" if lines and lines[-1] is not frames[-1] else ""
