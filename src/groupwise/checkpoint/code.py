"""Which of the package's files a result was computed by, so that code that has changed never meets an old result."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parents[1]
_NAME = _PACKAGE.name


def imported_code(module: str, without: Sequence[str] = ()) -> list[str]:
    """Files of the package that a module is made of: its own and, through any number of steps, those it imports.

    Args:
        module: dotted name. One that is not of the package has none.
        without: folders or files of the package that are left out, and with them what only they import.

    Returns:
        paths below the package, in order.

    Example:
        >>> imported_code("groupwise.streams")
        ['streams.py']
        >>> "records.py" in imported_code("groupwise.domain.protocol", without=["reward"])
        True
    """
    found: set[Path] = set()
    waiting = [path for path in [_file(module)] if path is not None]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(_PACKAGE).as_posix()
        if path in found or any(name == each or name.startswith(f"{each}/") for each in without):
            continue
        found.add(path)
        waiting += _imports(path)
    return sorted(path.relative_to(_PACKAGE).as_posix() for path in found)


def named_code(settings: Any) -> dict[str, str]:
    """Hash of the file of every module that settings name as `package.module:function`, wherever it is installed.

    Args:
        settings: nested tables and lists.

    Returns:
        module -> hash; a module that cannot be found has none.

    Example:
        >>> list(named_code({"rewards": [{"path": "groupwise.streams:Streams"}]}))
        ['groupwise.streams']
    """
    found: dict[str, str] = {}
    for text in _texts(settings):
        if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text):
            module = text.partition(":")[0]
            if (path := _anywhere(module)) is not None:
                found[module] = hashlib.sha256(path.read_bytes()).hexdigest()[:32]
    return dict(sorted(found.items()))


def _anywhere(module: str) -> Path | None:
    """The file of a module, installed or in the working directory, where a user's own usually lie. Nothing is imported
    to find it, not even what it lies in.
    """
    first, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(first)
    # A module of that name may be there already, with nothing that says where it is from.
    except ValueError:
        spec = None
    roots = [Path.cwd() / first]
    if spec is not None and spec.submodule_search_locations is not None:
        roots = [*map(Path, spec.submodule_search_locations), *roots]
    elif spec is not None and spec.origin is not None and not rest:
        roots = [Path(spec.origin).with_suffix(""), *roots]
    places = [root.joinpath(*rest) for root in roots]
    return next(
        (
            path
            for place in places
            for path in (place.with_name(f"{place.name}.py"), place / "__init__.py")
            if path.is_file()
        ),
        None,
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _file(module: str) -> Path | None:
    first, *rest = module.split(".")
    # The package's own `__init__` names everything and computes nothing.
    if first != _NAME or not rest:
        return None
    path = _PACKAGE.joinpath(*rest)
    return (
        path / "__init__.py"
        if (path / "__init__.py").is_file()
        else path.with_suffix(".py")
        if path.with_suffix(".py").is_file()
        else None
    )


@cache
def _imports(path: Path) -> tuple[Path, ...]:
    """Files of the package that one file imports, at its top or inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return tuple(found for name in sorted(names) if (found := _file(name)) is not None)
