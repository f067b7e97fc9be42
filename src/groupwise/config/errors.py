"""The error a user sees: which key, which value, what is allowed, what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final


def nearest(name: object, allowed: Iterable[object]) -> str | None:
    """The allowed name most like `name`, or None when nothing is close.

    Args:
        name: what was written.
        allowed: what could have been.

    Example:
        >>> nearest("gausian", ["clip", "gaussian"])
        'gaussian'
        >>> nearest("zzz", ["clip"]) is None
        True
    """
    names = [str(item) for item in allowed]
    found = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    return found[0] if found else None


_WALL = 12

_MOST_OF_A_PATH, _MOST_OF_A_MESSAGE = 300, 2000
"""Characters: a key or a value of megabytes is not told whole."""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


@final
@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a configuration.

    Args:
        path: dotted path of the key, empty for the whole.
        message: what is wrong with it, the value included.
        allowed: the names or values that may stand there, when they can be listed.
        suggestion: the allowed name that was probably meant.

    Example:
        >>> print(Problem("train.num_stps = 3", "unknown key", ("num_steps", "metric"), "num_steps"))
        train.num_stps = 3: unknown key; allowed: num_steps, metric; did you mean num_steps?
    """

    path: str
    message: str
    allowed: tuple[str, ...] = ()
    suggestion: str | None = None

    def __str__(self) -> str:
        path, message = _cut(self.path, _MOST_OF_A_PATH), _cut(self.message, _MOST_OF_A_MESSAGE)
        text = f"{path}: {message}" if path else message
        allowed = f"allowed: {', '.join(self.allowed)}" if self.allowed else ""
        meant = "" if self.suggestion is None else f"did you mean {self.suggestion}?"
        # Behind a wall of names nobody reads on.
        ordered = (
            f"{meant} {allowed}" if meant and len(self.allowed) > _WALL else "; ".join(filter(None, (allowed, meant)))
        )
        return f"{text}; {ordered}" if ordered else text


@final
class ConfigError(ValueError):
    """A configuration that cannot be used, with every problem found in it.

    Args:
        problems: what is wrong, one by one, or one sentence.
        source: the file or layer the configuration came from.

    Example:
        >>> print(ConfigError("no such file: a.toml"))
        no such file: a.toml
        >>> print(ConfigError([Problem("trust.sigm", "unknown key", ("kind", "sigma"), "sigma")], source="a.toml"))
        a.toml: trust.sigm: unknown key; allowed: kind, sigma; did you mean sigma?
    """

    def __init__(self, problems: str | Problem | Sequence[Problem], source: str = "") -> None:
        if isinstance(problems, str):
            problems = Problem("", problems)
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        self.source = source
        head = f"{source}: " if source else ""
        if len(self.problems) == 1:
            super().__init__(f"{head}{self.problems[0]}")
        else:
            super().__init__("\n  ".join([f"{head}{len(self.problems)} problems", *map(str, self.problems)]))
