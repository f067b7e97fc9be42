"""Methods as data: a preset is a TOML file that names its paper and states every slot, `matching` where it has one. No
preset has code of its own.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.config import ConfigError, Problem, merge, read_toml, validate
from groupwise.objective.method import Method, MethodFile, installed_methods, is_own, read_own

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective

_SLOTS = files("groupwise") / "presets" / "slots.json"
_METHODS = files("groupwise") / "presets" / "methods"
_OVERLAYS = files("groupwise") / "presets" / "overlays"


_BOTH = (
    ", or write one that rejects with the weights that are left truncated as well, for example dapo+mis with"
    " correction.truncate = 2.0"
)


def methods_by_need() -> dict[str, dict[str, Method]]:
    """Returns the methods by the need that they serve, those of no paper last.

    Example:
        >>> (
        ...     next(iter(methods_by_need())),
        ...     "gspo" in methods_by_need()["Several updates for each batch, mixtures of experts"],
        ... )
        ('A first run, a baseline', True)
    """
    files = {name: read_method(name) for name in method_names()}
    needs = [*sorted({file.question for file in files.values()} - {""}), ""]
    return {
        need or "Of the five sources, and of no paper": {
            name: file for name, file in files.items() if file.question == need
        }
        for need in needs
    }


@cache
def method_names() -> tuple[str, ...]:
    """Returns the names of all presets.

    Example:
        >>> {"grpo", "dapo", "source_003"} <= set(method_names())
        True
    """
    return tuple(sorted(file.name.removesuffix(".toml") for file in _METHODS.iterdir() if file.name.endswith(".toml")))


@cache
def overlay_names() -> tuple[str, ...]:
    """Returns the names of all overlays, written after a preset's name with `+`.

    Example:
        >>> overlay_names()
        ('geo_rs', 'icepop', 'mis', 'seq_mis', 'seq_tis', 'tis')
    """
    return tuple(sorted(file.name.removesuffix(".toml") for file in _OVERLAYS.iterdir() if file.name.endswith(".toml")))


def _unknown(kind: str, name: str, allowed: tuple[str, ...]) -> Problem:
    """Returns the problem of an unknown name, with the most similar names; case and hyphens are ignored."""
    near = difflib.get_close_matches(str(name).lower().replace("-", "_"), allowed, n=3, cutoff=0.6)
    return Problem("method", f"no {kind} is called {name!r}", allowed, " or ".join(near) or None)


def read_method(name: str) -> Method:
    """Reads a preset with its paper and its description.

    Args:
        name: the name of the preset, without overlays.

    Raises:
        ConfigError: there is no such preset; the message names the nearest ones.

    Example:
        >>> read_method("dapo").paper.arxiv
        '2503.14476'
    """
    if name in overlay_names():
        raise ConfigError(
            Problem("method", f"{name!r} is an overlay, laid on a method with +", suggestion=f"dapo+{name}")
        )
    if name not in method_names():
        raise ConfigError(_unknown("method", name, (*method_names(), *installed_methods())))
    return validate(Method, read_toml(str(_METHODS / f"{name}.toml")), source=f"methods/{name}.toml")


def read_overlay(name: str) -> Method:
    """Reads an overlay with its paper and its description; its objective holds the slots that it sets.

    Args:
        name: the name of the overlay, without the `+`.

    Raises:
        ConfigError: there is no such overlay; the message names the nearest ones.

    Example:
        >>> read_overlay("icepop").paper.arxiv
        '2510.18855'
    """
    if name not in overlay_names():
        raise ConfigError(_unknown("overlay", name, overlay_names()))
    return validate(Method, read_toml(str(_OVERLAYS / f"{name}.toml")), source=f"overlays/{name}.toml")


@cache
def _recorded_slots() -> dict[str, dict[str, Any]]:
    return json.loads(_SLOTS.read_text(encoding="utf-8"))


def resolved_slots(name: str) -> dict[str, Any]:
    """Returns every slot of a method with every key, those of a preset alone as they are recorded: without torch.

    Args:
        name: a preset or a user's method, overlays joined by `+`.

    Raises:
        ConfigError: as `objective_from`.

    Example:
        >>> resolved_slots("gspo")["trust"]
        {'kind': 'clip', 'low': 0.0003, 'high': 0.0004}
    """
    recorded = _recorded_slots().get(name)
    return recorded if recorded is not None else objective_from(name, {}).model_dump(mode="json", exclude={"name"})


def method_tree(name: str) -> dict[str, Any]:
    """Returns the slots of a preset with its overlays (`dapo+tis`), as a plain table ready for edits.

    Args:
        name: a preset, overlays joined by `+`.

    Raises:
        ConfigError: no such preset or overlay, or two overlays of one slot.

    Example:
        >>> method_tree("dapo+tis")["correction"]["kind"]
        'truncate'
    """
    base, *overlays = str(name).split("+")
    tree = _tree_of_own(base) if is_own(base) else dict(read_method(base).objective)
    taken: dict[str, str] = {}
    for overlay in overlays:
        slots = read_overlay(overlay).objective
        for slot in slots:
            if slot in taken:
                problem = (
                    f"the overlays {taken[slot]!r} and {overlay!r} both set {slot}, and only one can hold; keep"
                    f" one{_BOTH}"
                )
                raise ConfigError(Problem("method", f"{name!r}: {problem}"))
            taken[slot] = overlay
        tree = merge(tree, slots)
    return tree


def lineage(
    name: str, folder: Path = Path(), above: tuple[Path, ...] = ()
) -> tuple[str, list[tuple[MethodFile, Path]]]:
    """Follows a user's method to the published method that it changes.

    Args:
        name: a file or an entry point, without overlays.
        folder: the folder to which a relative path refers.
        above: the files that extend this one, the first first.

    Returns:
        the published method's name with its overlays, and the methods that change it with their files, the lowest
        first.

    Raises:
        ConfigError: there is no such file, a file has an unknown key, or files extend each other in a circle.
    """
    file, path = read_own(name, folder)
    _check_slots(file, path)
    if path in above:
        circle = " -> ".join(file_path.name for file_path in (*above, path))
        raise ConfigError(f"{path}: extends itself, through {circle}; remove one extends")
    base, plus, overlays = file.extends.partition("+")
    if not is_own(base):
        try:
            read_method(base)
        except ConfigError as error:
            raise ConfigError(
                [replace(problem, path=f"extends = {file.extends!r}") for problem in error.problems], source=str(path)
            ) from None
        return file.extends, [(file, path)]
    if overlays:
        raise ConfigError(
            Problem(f"extends = {file.extends!r}", f"lay {plus}{overlays} on this method where it is named"),
            source=str(path),
        )
    below, files = lineage(base, path.parent, (*above, path))
    return below, [*files, (file, path)]


def _check_slots(file: MethodFile, path: Path) -> None:
    """Refuses keys of a method that are not slots of an objective: merged into an experiment they would be its own."""
    from groupwise.objective.objective import Objective

    slots = tuple(name for name in Objective.model_fields if name != "name")
    problems = [
        Problem(
            f"objective.{key} = {json.dumps(value, default=str)}",
            "is no part of a method's objective; a key of another table stands in the experiment",
            slots,
            next(iter(difflib.get_close_matches(key, slots, n=1, cutoff=0.7)), None),
        )
        for key, value in file.objective.items()
        if key not in slots
    ]
    if problems:
        raise ConfigError(problems, source=str(path))


def _tree_of_own(name: str) -> dict[str, Any]:
    from groupwise.objective.objective import Objective

    below, files = lineage(name)
    tree = method_tree(below)
    for file, path in files:
        tree = _with_edits(tree, file.objective)
        try:
            validate(Objective, tree)
        except ConfigError as error:
            problems = [replace(problem, path=f"objective.{problem.path}".strip(".")) for problem in error.problems]
            raise ConfigError(problems, source=str(path)) from None
    return tree


def _with_edits(tree: Mapping[str, Any], edits: Mapping[str, Any]) -> dict[str, Any]:
    from groupwise.objective.objective import Objective

    return merge(tree, edits, Objective)


def resolve(name: str, edits: Mapping[str, Any]) -> Objective:
    """Returns the objective of a preset with edits (a nested table), named `NAME+edited` where they changed something.

    Raises:
        ConfigError: unknown preset, unknown key, refused combination.
    """
    from groupwise.objective.objective import Objective

    plain = _plain(name) if is_own(str(name).partition("+")[0]) else _published(name)
    if not edits:
        return plain
    tree = _with_edits(method_tree(name), edits) | {"name": name}
    edited = validate(Objective, tree, source=f"method {name} with changes")
    return edited if edited == plain else edited.model_copy(update={"name": f"{name}+edited"})


def _plain(name: str) -> Objective:
    from groupwise.objective.objective import Objective

    return validate(Objective, method_tree(name) | {"name": name}, source=f"method {name}")


_published = cache(_plain)


def objective_from(name: str, overrides: Mapping[str, Any]) -> Objective:
    """Returns a preset with dotted overrides, as `Objective.preset` does.

    Args:
        name: a preset, overlays joined by `+`.
        overrides: dotted key -> value.

    Raises:
        ConfigError: no such preset, an unknown key, a refused combination.

    Example:
        >>> objective_from("dapo", {"trust.kind": "gaussian"}).name
        'dapo+edited'
    """
    edits: dict[str, Any] = {}
    for key, value in overrides.items():
        if key.startswith("objective."):
            raise ConfigError(
                Problem(key, f"these are keys of the objective already; write {key.removeprefix('objective.')}")
            )
        # Without this check the loop below would write into the caller's table.
        if any(override.startswith(f"{key}.") for override in overrides):
            raise ConfigError(Problem(key, "is given as a whole and in parts; keep one of them"))
        *tables, last = key.split(".")
        table = edits
        for part in tables:
            table = table.setdefault(part, {})
        table[last] = value
    return resolve(name, edits)
