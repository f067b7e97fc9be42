"""A method of a user's domain that raises: one line that names the class, the method and the line of its code."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, TracebackType
from typing import TYPE_CHECKING, Any

from groupwise.checkpoint.atomic import StorageError
from groupwise.config import ConfigError, why_failed
from groupwise.domain.returned import Fault
from groupwise.plugins import is_shipped
from groupwise.processes import is_out_of_memory
from groupwise.reward import RewardError

if TYPE_CHECKING:
    from groupwise.domain.base import Domain


@contextmanager
def naming_failed_method(domain: Domain) -> Iterator[None]:
    """Names the method of a user's domain, or of its learner, in which a block fails; the original error is the cause
    of the new one.

    The method is the first of theirs that the error's traceback enters, whoever called it. Errors below a method of
    this package alone stay as they are, and so do errors that name their remedy, and memory that ran out.

    Args:
        domain: whose methods the block may call.

    Raises:
        ConfigError: a method raised, or returned what cannot be used (`groupwise.domain.returned.Fault`).

    Example:
        >>> class Mine:
        ...     def evaluate(self):
        ...         return {}["score"]
        >>> Mine.__module__, mine = "mine", Mine()
        >>> with naming_failed_method(mine):
        ...     mine.evaluate()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: domain: Mine.evaluate raised KeyError: 'score'...
    """
    try:
        yield
    except (ConfigError, RewardError, StorageError):
        raise
    except Fault as fault:
        raise fault.of(domain) from fault
    # A user's code may fail in any way.
    except Exception as error:
        if is_out_of_memory(error):
            raise
        for owner in (domain, vars(domain).get("learner")):
            method = _method_entered(type(owner), error.__traceback__)
            if method is not None:
                called = f"domain: {type(owner).__name__}.{method} raised {why_failed(error)}{_own_line(owner, error)}"
                raise ConfigError(called) from error
        raise


def _method_entered(owner: type, entered: TracebackType | None) -> str | None:
    """Returns the name of the first public method of a class, apart from those of this package, on a traceback."""
    names = _names_by_code(owner)
    while entered is not None:
        if entered.tb_frame.f_code in names:
            return names[entered.tb_frame.f_code]
        entered = entered.tb_next
    return None


def _names_by_code(owner: type) -> dict[CodeType, str]:
    """Returns code -> name of the public methods that are not this package's; code of several names (a decorator
    without `functools.wraps`) says nothing and is left out.
    """
    names: dict[CodeType, set[str]] = {}
    for cls in owner.__mro__:
        if is_shipped(cls.__module__):
            continue
        for name, member in vars(cls).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if isinstance(function, FunctionType) and not name.startswith("_"):
                names.setdefault(inspect.unwrap(function).__code__, set()).add(name)
    return {code: min(several) for code, several in names.items() if len(several) == 1}


def _own_line(owner: Any, error: Exception) -> str:
    """Returns the last line of the class's own file that ran, where the error was raised below it, in a library."""
    try:
        own = Path(inspect.getfile(type(owner)))
    except (OSError, TypeError):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if Path(frame.filename) == own]
    return f", called at {own.name}:{lines[-1].lineno}" if lines and lines[-1] is not frames[-1] else ""
