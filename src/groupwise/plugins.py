"""Objects that other packages bring under a name, by entry points: those of `groupwise.names`, and the verbs of the
command.

The packages beside this one (`groupwise_images`, `groupwise_trainers`, ...) come in this way, as a stranger's do: this
package imports none of them.
"""

from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any


@lru_cache(maxsize=1)
def _all_points() -> Any:
    # Reading all groups of the installed packages takes as long as reading one.
    return entry_points()


def installed_points(group: str) -> tuple[EntryPoint, ...]:
    """Returns the entry points of a group.

    Example:
        >>> "language" in [point.name for point in installed_points("groupwise.domains")]
        True
    """
    return tuple(_all_points().select(group=group))


@lru_cache(maxsize=1)
def _shipped_packages() -> frozenset[str]:
    groups = [installed_points(group) for group in _all_points().groups]
    ours = [point for points in groups for point in points if point.dist and point.dist.name == "groupwise"]
    return frozenset({"groupwise", *(point.module.partition(".")[0] for point in ours)})


def is_shipped(module: str) -> bool:
    """Returns whether a module belongs to this distribution, by its name.

    Example:
        >>> is_shipped("groupwise_images.diffusion"), is_shipped("groupwise_mine")
        (True, False)
    """
    return module.partition(".")[0] in _shipped_packages()


def is_shipped_file(path: str | Path) -> bool:
    """Returns whether a file of code belongs to this distribution.

    Example:
        >>> is_shipped_file(__file__), is_shipped_file("/home/me/reward.py")
        (True, False)
    """
    beside = Path(__file__).resolve().parents[1]
    inside = Path(path).resolve()
    return inside.is_relative_to(beside) and inside.relative_to(beside).parts[0] in _shipped_packages()


def absent(point: EntryPoint) -> str:
    """Reports in one line that the package of an entry point is not here; an empty text where it is.

    Example:
        >>> absent(EntryPoint("atlas", "groupwise_atlas:atlas", "groupwise.verbs"))
        'atlas comes with the package groupwise_atlas, which is not installed here; install it, or do without atlas'
    """
    package = point.module.partition(".")[0]
    if find_spec(package) is not None:
        return ""
    return (
        f"{point.name} comes with the package {package}, which is not installed here; install it, or do without"
        f" {point.name}"
    )


def folders(group: str) -> list[Path]:
    """Returns the folders that packages bring by entry points of the form `package:folder`.

    Example:
        >>> [folder.name for folder in folders("groupwise.experiments")]
        ['experiments', 'experiments']
    """
    found = []
    for point in installed_points(group):
        spec = None if absent(point) else find_spec(point.module)
        found += [Path(place) / point.attr for place in (spec and spec.submodule_search_locations) or ()]
    return found


def find(name: str) -> Any:
    """Returns the object that a package brings under a name of `groupwise.names`; `None` where it is not here.

    Example:
        >>> find("nobody") is None
        True
    """
    return brought("groupwise.names", name)


def brought(group: str, name: str) -> Any:
    """Returns the object that a package brings under a name of a group of entry points; `None` where it is not here.

    Example:
        >>> brought("groupwise.results", "report").__name__
        'report'
    """
    point = _point(group, name)
    return None if point is None or absent(point) else point.load()


def require(name: str) -> Any:
    """Returns the object that a package brings under a name of `groupwise.names`.

    Raises:
        AttributeError: no package knows the name.
        ImportError: its package is not here.

    Example:
        >>> require("Selector").__name__
        'Selector'
    """
    point = _point("groupwise.names", name)
    if point is None:
        raise AttributeError(f"module 'groupwise' has no attribute {name!r}, and no installed package brings it")
    if reason := absent(point):
        raise ImportError(reason)
    return point.load()


def _point(group: str, name: str) -> EntryPoint | None:
    return next((point for point in installed_points(group) if point.name == name), None)
