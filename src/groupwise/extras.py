"""The extras of this package: which of them brings a package that is missing, and the line that says so."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec

from groupwise.config import ConfigError, Problem

_IMPORTED_AS = {
    "pillow": "PIL",
    "scikit-image": "skimage",
    "scikit-learn": "sklearn",
}
"""Packages that are imported by another name than the one they are installed by."""

_LINE = re.compile(r"([A-Za-z0-9_.-]+).*;.*extra\s*==\s*['\"]([a-z]+)['\"]")
_EXTRAS = ("report", "language", "diffusion", "restoration", "selection")
"""What needs one of a domain's is refused before it is loaded; what is missing later is mostly of the report."""


@lru_cache(maxsize=1)
def _modules() -> dict[str, tuple[str, ...]]:
    """The modules that each extra brings, by the extra's name, as the installed package states them."""
    try:
        lines = requires("groupwise") or []
    except PackageNotFoundError:
        lines = []
    modules: dict[str, list[str]] = {}
    for line in lines:
        if match := _LINE.fullmatch(line.strip()):
            name, extra = match.groups()
            modules.setdefault(extra, []).append(_IMPORTED_AS.get(name, name.replace("-", "_")))
    return {extra: tuple(names) for extra, names in modules.items()}


def missing(extra: str) -> tuple[str, ...]:
    """List the modules of an extra that cannot be imported here.

    Args:
        extra: its name, for example "language".

    Example:
        >>> missing("language")
        ()
    """
    return tuple(name for name in _modules().get(extra, ()) if find_spec(name) is None)


def advice(module: str) -> str | None:
    """Say in one line which extra brings a module that is missing.

    Args:
        module: as it is imported.

    Returns:
        the line; None where no extra of this package brings it.

    Example:
        >>> advice("scipy")
        "scipy is not installed; the extras report and restoration bring it: pip install '.[report]'"
        >>> advice("colorsys") is None
        True
    """
    extras = [extra for extra in _EXTRAS if module in _modules().get(extra, ())]
    if not extras:
        return None
    *front, last = extras
    which = f"the extras {', '.join(front)} and {last} bring it" if front else f"the extra {last} brings it"
    return f"{module} is not installed; {which}: {install(extras[0])}"


def install(extra: str) -> str:
    """Give the command that installs an extra, in the folder of this project.

    Args:
        extra: its name.
    """
    return f"pip install '.[{extra}]'"


def require(extra: str, what: str) -> None:
    """Refuse what needs an extra that is not installed.

    Args:
        extra: its name.
        what: needs it, as the user wrote it.

    Raises:
        ConfigError: naming the packages that are missing and what installs them.

    Example:
        >>> require("language", "domain.kind = 'language'")
    """
    if modules := missing(extra):
        raise ConfigError(
            Problem(
                what,
                f"needs the extra {extra}; not installed are {', '.join(modules)}; write {install(extra)}",
            )
        )
