"""A search with a user's regular expression in a policy's text: within a time limit, and without holding the
interpreter's lock.
"""

from __future__ import annotations

import collections
from functools import cache
from typing import Any

SECONDS = 5.0
"""CPU seconds one search may take. Ordinary ones take microseconds; a nested repetition on a hostile text takes longer
than anybody waits.
"""


class SlowPattern(ValueError):
    """A search that passed its time limit."""


@cache
def compiled(pattern: str) -> Any:
    """Compiles the pattern for `last` and `fits`; `.` in `fits` matches line breaks.

    Args:
        pattern: a regular expression in the language of Python's `re`.

    Raises:
        ValueError: it does not compile.

    Example:
        >>> compiled("(a")
        Traceback (most recent call last):
        ...
        ValueError: '(a' is no regular expression (missing ) at position 2); write one that Python's re compiles, in single quotes in TOML
    """  # noqa: E501
    # Python's own re module cannot be interrupted, and holds the interpreter's lock while it searches.
    import regex

    try:
        return regex.compile(pattern)
    except regex.error as error:
        raise ValueError(
            f"{pattern!r} is no regular expression ({error}); write one that Python's re compiles, in single quotes in"
            " TOML"
        ) from None


def last(pattern: str, text: str) -> Any:
    """Returns the last match in a text, None where there is none.

    Raises:
        SlowPattern: it took longer than `SECONDS`.

    Example:
        >>> last(r"x = (\\S+)", "x = 3, no, x = 4")[1]
        '4'
    """
    try:
        matches = collections.deque(compiled(pattern).finditer(text, concurrent=True, timeout=SECONDS), maxlen=1)
    except TimeoutError:
        raise _slow(pattern, text) from None
    return matches[0] if matches else None


def fits(pattern: str, text: str) -> bool:
    """Returns True where the whole text matches; `.` matches line breaks.

    Raises:
        SlowPattern: it took longer than `SECONDS`.

    Example:
        >>> fits("a.b", "a\\nb")
        True
    """
    import regex

    compiled(pattern)
    try:
        return regex.fullmatch(pattern, text, regex.DOTALL, concurrent=True, timeout=SECONDS) is not None
    except TimeoutError:
        raise _slow(pattern, text) from None


def _slow(pattern: str, text: str) -> SlowPattern:
    return SlowPattern(
        f"{pattern!r} took longer than {SECONDS:g} s on a text of {len(text)} characters, which counts as no match"
    )
