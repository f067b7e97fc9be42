"""Experiments as files: a shipped one is looked up by name, another one by the path of a TOML file or of a run's
`config.json`.

Reads files and nothing else, so that listing experiments starts at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from pathlib import Path
from typing import Any, final

from groupwise.config import ConfigError, Problem, merge, nearest, read_json, read_toml
from groupwise.plugins import folders
from groupwise.runs.folder import RunFolder, with_slots_at_top

_PRESETS = Path(__file__).resolve().parents[1] / "presets"
PROMPTS = "prompts"
"""The experiment that is used where a model is named and no experiment."""


@final
@dataclass(frozen=True)
class Source:
    """An experiment as it is written.

    Args:
        name: the file's name without its extension, or the name that a resolved configuration states.
        layers: the extended files and the file itself, the lowest first, each with its table.

    Example:
        >>> source = find("language")
        >>> source.name, source.path.name
        ('language', 'language.toml')
    """

    name: str
    layers: tuple[tuple[Path, Mapping[str, Any]], ...]

    @property
    def path(self) -> Path:
        """The file that was asked for."""
        return self.layers[-1][0]

    @cached_property
    def tree(self) -> Mapping[str, Any]:
        """The file's table, laid over the tables that it extends."""
        return reduce(merge, (table for _, table in self.layers))

    @property
    def description(self) -> str:
        """The file's description of the experiment; empty where it has none."""
        return str(self.tree.get("description", ""))

    def without_rewards(self) -> "Source":
        """Returns the experiment without its rewards, for others that are named in their place."""
        return replace(self, layers=(*self.layers, (self.path, {"domain": {"rewards": None}})))


@lru_cache(maxsize=1)
def _shipped() -> dict[str, Path]:
    """Returns name -> file, for the files of this package and of packages that have an entry point `package:folder` in
    `groupwise.experiments`.
    """
    places = [_PRESETS / "experiments", *folders("groupwise.experiments")]
    return {path.stem: path for folder in places for path in folder.glob("*.toml")}


def shipped() -> list[str]:
    """Lists the names of the experiments that come with Groupwise.

    Example:
        >>> "language" in shipped()
        True
    """
    return sorted(_shipped())


def kind_of_models() -> str:
    """Returns the kind of domain that a model belongs to where no experiment is named.

    Example:
        >>> kind_of_models() in [find(name).tree["domain"]["kind"] for name in shipped()]
        True
    """
    return str(find(PROMPTS).tree["domain"]["kind"])


def find(name: str | Path) -> Source:
    """Returns the experiment of a name or path, as its files state it.

    A file may say `extends = "other"` (a name, or a path beside it) and write only what differs.

    Args:
        name: a shipped name, a `.toml` file, a run folder or its `config.json`.

    Returns:
        the experiment's table, laid over the tables that it extends.

    Raises:
        ConfigError: no such name or file, a file that cannot be read, or files that extend each other in a circle.

    Example:
        >>> find("langage")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: ...is neither a shipped experiment nor a file...
    """
    return _read(_locate(str(name), Path()), ())


def _locate(name: str, beside: Path) -> Path:
    written = beside / name
    try:
        written.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        # For example, the name has more than 255 bytes, links form a loop, or a folder cannot be read.
        raise ConfigError(
            f"{name[:200]!r} cannot be looked for as a file ({getattr(error, 'strerror', None) or error}); give a name"
            " or a path"
        ) from None
    if written.is_dir() and RunFolder(written).is_run:
        return RunFolder(written).config
    if written.suffix in (".toml", ".json") or written.is_file():
        return written
    if name in _shipped():
        return _shipped()[name]
    if (beside / f"{name}.toml").is_file():
        return beside / f"{name}.toml"
    raise ConfigError(
        Problem(
            "",
            f"{name!r} is neither a shipped experiment nor a file; give a name, a .toml file, a run folder or its"
            " config.json",
            tuple(shipped()),
            nearest(name, shipped()),
        )
    )


def with_null(value: Any) -> Any:
    """Returns a table of a TOML file with None in place of the text `null`: TOML has no null of its own.

    Args:
        value: a table, or a value in it.

    Example:
        >>> with_null({"controls": "null", "stages": [{"set": {"auxiliary": "null"}}]})
        {'controls': None, 'stages': [{'set': {'auxiliary': None}}]}
    """
    if isinstance(value, Mapping):
        return {key: with_null(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_null(inner) for inner in value]
    return None if value == "null" else value


def _read(path: Path, through: tuple[Path, ...]) -> Source:
    if path.resolve() in through:
        raise ConfigError(
            f"{path}: extends itself, through {' -> '.join(file.name for file in [*through, path])}; remove one"
            " `extends`"
        )
    resolved = path.suffix == ".json"
    tree = with_slots_at_top(read_json(path)) if resolved else with_null(read_toml(path))
    name = str(tree.get("name") or (path.stem if not resolved else path.parent.name))
    below = tree.pop("extends", None)
    if below is None:
        return Source(name, ((path, tree),))
    if not isinstance(below, str):
        message = 'must be the name or the path of one experiment, for example extends = "language"'
        raise ConfigError(Problem(f"extends = {below!r}", message), source=str(path))
    # A file does not inherit the name and the description of the file that it extends.
    inherited = (
        (file, {key: value for key, value in table.items() if key not in ("name", "description")})
        for file, table in _read(_locate(below, path.parent), (*through, path.resolve())).layers
    )
    return Source(name, (*inherited, (path, tree)))
