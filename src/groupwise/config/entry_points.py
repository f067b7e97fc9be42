"""Objects that installed packages bring by entry points. The code of a package is loaded only for the name that is
written.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, final

from groupwise.config.errors import ConfigError, Problem, nearest
from groupwise.config.user_module import why_failed

PACKAGE = "groupwise"


@final
@dataclass(frozen=True)
class Installed:
    """An object that an installed package brings.

    Args:
        value: the object.
        path: `package.module:name`, as the package writes it.
        package: the name of the package.
    """

    value: Any
    path: str
    package: str


@lru_cache(maxsize=8)
def _points(group: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def installed_names(group: str) -> tuple[str, ...]:
    """Returns the names that installed packages bring in a group of entry points.

    Example:
        >>> "language" in installed_names("groupwise.domains")
        True
    """
    return tuple(dict.fromkeys(point.name for point in _points(group)))


def has_shipped_names(group: str) -> bool:
    """Tells whether this package's own entry points of a group are there; a checkout has none until it is installed."""
    return any(point.dist and point.dist.name == PACKAGE for point in _points(group))


def load_installed(name: str, group: str, key: str) -> Installed:
    """Loads the object that an installed package brings under a name.

    Args:
        name: of the entry point.
        group: of the entry points.
        key: what an error calls the setting.

    Raises:
        ConfigError: no package or more than one brings it, or the code of the package cannot be imported.

    Example:
        >>> load_installed("language", "groupwise.domains", "kind").path
        'groupwise.domain.language.config:LanguageConfig'
    """
    place = f"{key} = {name!r}"
    points = {point.value: point for point in _points(group) if point.name == name}
    if not points:
        names = sorted(installed_names(group))
        message = (
            f"no installed package brings it (entry points of {group!r}: {', '.join(names) or 'none'}); for a function"
            " of a module write package.module:function"
        )
        raise ConfigError(Problem(place, message, suggestion=nearest(name, names)))
    packages = " and ".join(sorted(point.dist.name if point.dist else point.value for point in points.values()))
    if len(points) > 1:
        message = f"it is brought by {len(points)} packages, {packages}; uninstall all but one of them"
        raise ConfigError(Problem(place, message))
    (point,) = points.values()
    try:
        return Installed(point.load(), point.value, packages)
    # A stranger's package may fail in any way while it is imported.
    except (Exception, SystemExit) as error:
        message = f"the code of package {packages} ({point.value}) cannot be imported: {why_failed(error)}"
        raise ConfigError(Problem(place, message)) from error
