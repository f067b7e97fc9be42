"""The errors of a configuration: the key, the value, the allowed values, and the name that was probably meant."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, final

from pydantic import Field


def nearest(name: object, allowed: Iterable[object]) -> str | None:
    """Returns the allowed name most like `name`, or None when none is close.

    Args:
        allowed: the names that are allowed in its place.

    Example:
        >>> nearest("gausian", ["clip", "gaussian"])
        'gaussian'
        >>> nearest("zzz", ["clip"]) is None
        True
    """
    names = [str(allowed_name) for allowed_name in allowed]
    close_names = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    return close_names[0] if close_names else None


_WALL = 12
"""With more allowed names than this, the suggestion is printed before the list."""

_MOST_OF_A_PATH, _MOST_OF_A_MESSAGE = 300, 2000
"""The most characters of a path and of a message. A key or a value of megabytes is cut."""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


@final
@dataclass(frozen=True)
class Problem:
    """One mistake in a configuration.

    Args:
        path: dotted path of the key; empty for the whole configuration.
        message: the mistake, with the value.
        allowed: the names or values that are allowed at the key, when they can be listed.
        suggestion: the allowed name that was probably meant.
        value: what stands at the key, where it is unknown.

    Example:
        >>> print(Problem("train.num_stps = 3", "unknown key", ("num_steps", "metric"), "num_steps"))
        train.num_stps = 3: unknown key; allowed: num_steps, metric; did you mean num_steps?
    """

    path: str
    message: str
    allowed: tuple[str, ...] = ()
    suggestion: str | None = None
    value: Any = None

    def __str__(self) -> str:
        path, message = _cut(self.path, _MOST_OF_A_PATH), _cut(self.message, _MOST_OF_A_MESSAGE)
        text = f"{path}: {message}" if path else message
        allowed = f"allowed: {', '.join(self.allowed)}" if self.allowed else ""
        suggestion = "" if self.suggestion is None else f"did you mean {self.suggestion}?"
        # Nobody reads to the end of a long list of names, so the suggestion comes first.
        hints = (
            f"{suggestion} {allowed}"
            if suggestion and len(self.allowed) > _WALL
            else "; ".join(filter(None, (allowed, suggestion)))
        )
        return f"{text}; {hints}" if hints else text


class ConfigError(ValueError):
    """An unusable configuration, with every mistake in it.

    Args:
        problems: the mistakes, or one sentence.
        source: the file or layer of the configuration.

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


@contextmanager
def keys_under(place: str) -> Iterator[None]:
    """Puts the place of a configuration before the keys of errors inside the block, where the code that raises them
    does not know whose configuration it reads.

    Args:
        place: the dotted path of the configuration.

    Example:
        >>> with keys_under("domain.model"):
        ...     raise ConfigError("path = 'nowhere': no such folder")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: domain.model.path = 'nowhere': no such folder
    """
    try:
        yield
    except ConfigError as error:
        if _STARTS_WITH_A_KEY.match(str(error)) is None:
            raise
        raise ConfigError(f"{place}.{error}") from error


_STARTS_WITH_A_KEY = re.compile(r"[a-z_]+ = ")


# Types of the numbers in a configuration. Each has an upper bound, beyond which a number is a typing error or would
# never end.

Count = Annotated[int, Field(ge=0, le=10**9)]
"""A count that may be zero."""

Positive = Annotated[int, Field(ge=1, le=10**9)]
"""A count of at least one: steps, tokens, rows."""

PerStep = Annotated[int, Field(ge=1, le=10**6)]
"""A count of objects that are in memory together: members of a group, prompts of a step, images of a prompt."""

Length = Annotated[int, Field(ge=1, le=10**4)]
"""The length of a sequence that is made piece by piece, or the number of layers of a network."""

Width = Annotated[int, Field(ge=1, le=2**20)]
"""The width of a layer or an image."""

Parallel = Annotated[int, Field(ge=1, le=1024)]
"""The number of simultaneous threads or requests."""

Mebibytes = Annotated[int, Field(ge=64, le=2**30)]
"""The memory that a program may take: Python does not run in less, and no machine has more."""

Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""The seed of random draws."""

Seconds = Annotated[float, Field(gt=0, le=1e8)]
"""A limit on time: three years at most, as the clocks of the system take no more than a few hundred."""
