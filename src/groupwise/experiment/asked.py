"""What a folder of somebody else's would run is asked about before any of it runs.

A configuration may name any function that Python can import, with any arguments: `subprocess:Popen` is one. What a user
writes himself, a TOML file or `key=value` items, is his word. What lies in a run folder or came out of one, a
`config.json` above all, may be anybody's.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, final

from pydantic import BaseModel

from groupwise.config import ConfigError, ImportPath, Named, flatten, import_paths, is_object
from groupwise.experiment.catalogue import Source
from groupwise.experiment.schema import Experiment
from groupwise.processes import is_first_process
from groupwise.runs.authored_configs import is_authored, note_authored
from groupwise.runs.find import is_run
from groupwise.runs.folder import RunFolder

log = logging.getLogger("groupwise")

RUN_CODE = "GROUPWISE_RUN_CODE"
"""The environment variable that stands for `--run-code` where commands are written by templates."""

SAFE = frozenset(
    tomllib.loads((resources.files("groupwise.presets") / "harmless.toml").read_text(encoding="utf-8"))["names"]
)
"""Code that anybody's configuration may run unasked, as `harmless.toml` lists it. That a name begins with `groupwise`
says little: `groupwise.experiment.grids:subprocess.Popen` is such a name.
"""

_MOST_SHOWN = 12
_LONGEST = 60
_LONGEST_FOLDER = 300
_OF_A_FOLDER = ("config.json", "network.json")


@final
@dataclass(frozen=True)
class Says:
    """A file that names code.

    Args:
        file: the file.
        content: what it says, JSON-able; the user's list knows the file by it.
        code: what it names.
    """

    file: Path
    content: Any
    code: tuple[Named, ...]


def code_of(experiment: Experiment) -> list[Named]:
    """Every place at which an experiment names code, those inside its stages and controls too, with keys as they are
    written.

    Args:
        experiment: any.

    Example:
        >>> from groupwise import load_experiment
        >>> [(each.key, each.path.name) for each in code_of(load_experiment("language"))]
        [('domain.rewards.worked.path', 'worked')]
    """
    named = [_as_written(each) for each in import_paths(experiment)]
    outside = {each.key: each.path for each in named}
    spans = [(f"stages.{stage.name}", span) for stage, span in zip(experiment.stages, experiment.spans, strict=False)]
    spans += [(f"controls.{name}", span) for name in experiment.controls for span in experiment.control(name)]
    for place, span in spans:
        for each in map(_as_written, import_paths(span)):
            if each.path != outside.get(each.key):
                inside = Named(f"{place}.set.{each.key}", each.path, each.holder)
                named += [] if inside in named else [inside]
    return named


def is_foreign(source: Source) -> bool:
    """Whether an experiment may be somebody else's: it lies in a run folder, or came out of one, or extends what does.

    A `.json` file is what a run or a comparison wrote. A `.toml` file is what a person wrote, and his own unless it
    lies in a run folder.

    Args:
        source: as it was found.
    """
    return any(
        file.suffix == ".json" or _in_a_run(file.parent) or _in_a_run(file.resolve().parent) for file in source.files
    )


def said_by(source: Source, code: Iterable[Named], over: Mapping[str, Any]) -> Says:
    """What an experiment's own file names, without what stands in the command.

    Args:
        source: as it was found.
        code: what the experiment names.
        over: what the command lays on it.
    """
    own = set(flatten(over))
    return Says(
        source.path,
        list(source.layers),
        tuple(each for each in code if each.key not in own and each.key.partition("[")[0] not in own),
    )


def said_beside(config: BaseModel, known: Sequence[Named] = ()) -> Iterator[Says]:
    """What the model folders name that a configuration points at: a network's class stands in the folder's
    `network.json`.

    Args:
        config: of an experiment, or a part of it.
        known: code that runs anyway; a folder may name the same with the same arguments.
    """
    holders = [each.holder for each in known]
    for file, content in _beside(config):
        code = tuple(each for each in import_paths(content, str(file)) if each.holder not in holders)
        yield Says(file, content.model_dump(mode="json"), code)


def ask(files: Iterable[Says], run_code: bool = False) -> None:
    """Refuses what files name, unless the user says that it may run, or made them himself, or it is the package's own.

    Args:
        files: what names code.
        run_code: whether the user said so in the command; the files are then noted, and are not asked about again where
            they lie now.

    Raises:
        ConfigError: something is left to ask about; names every place, its code, and what to write.
    """
    asked = [(says, outside) for says in files if (outside := [each for each in says.code if not _is_safe(each.path)])]
    if run_code:
        for says, _ in asked if is_first_process() else ():
            remember(says.file, says.content)
        return
    if os.environ.get(RUN_CODE) == "1":
        return
    inside = [(says, outside) for says, outside in asked if _works_inside(says.file)]
    if left := inside or [(says, outside) for says, outside in asked if not is_authored(says.file, says.content)]:
        raise ConfigError(
            _question(
                left,
                (
                    "the working directory lies in a run folder, whose own files would be imported"
                    if inside
                    else "you did not make it"
                ),
            )
        )


def asks(experiment: Experiment) -> bool:
    """Whether a run folder of this experiment would be asked about in somebody else's hands.

    Args:
        experiment: any.

    Example:
        >>> from groupwise import load_experiment
        >>> asks(load_experiment("language"))
        False
    """
    return any(not _is_safe(each.path) for each in code_of(experiment))


def _is_safe(path: ImportPath) -> bool:
    """Returns whether code may run unasked: it is listed as harmless, or is an object that the user's program holds."""
    return path in SAFE or is_object(path)


def remember(file: Path, content: Any) -> None:
    """Writes a file that names code into the user's list; where that cannot be, says what will be asked.

    Args:
        file: the file.
        content: what it says.
    """
    if why := note_authored(file, content):
        log.warning("%s; going on with %s will need --run-code", why, file.parent)


def _question(left: Sequence[tuple[Says, Sequence[Named]]], why: str) -> str:
    file = left[0][0].file
    places = {f"{_short(each.key)} = {_short(each.path)}": each.path for _, outside in left for each in outside}
    # Code that is named for the first time stands first: what matters cannot hide behind a hundred names of the same.
    first = {path: place for place, path in reversed(places.items())}
    named = list(dict.fromkeys([*reversed(first.values()), *places]))
    more = f" and {len(named) - _MOST_SHOWN} more" if len(named) > _MOST_SHOWN else ""
    folder = file.parent if file.name in _OF_A_FOLDER else file
    return (
        f"{_short(str(folder), _LONGEST_FOLDER)} names code that would run, and {why}:"
        f" {', '.join(named[:_MOST_SHOWN])}{more}; where you trust it, write --run-code ({RUN_CODE}=1 in a job's"
        " template)"
    )


def _works_inside(file: Path) -> bool:
    """Whether the working directory lies in a run folder, this one or another: modules are looked for there too, and
    its files taken for the user's.
    """
    here = Path.cwd().resolve()
    return _in_a_run(here) or (file.name in _OF_A_FOLDER and file.parent.resolve() in (here, *here.parents))


def _in_a_run(folder: Path) -> bool:
    absolute = folder.absolute()
    return any(RunFolder(each).is_run and is_run(each) for each in (absolute, *absolute.parents))


def _beside(value: Any) -> Iterator[tuple[Path, BaseModel]]:
    if isinstance(value, BaseModel):
        yield from getattr(value, "configurations_beside", dict)().items()
        for field in type(value).model_fields:
            yield from _beside(getattr(value, field))
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _beside(inner)


def _as_written(named: Named) -> Named:
    return Named(named.key.removeprefix("objective."), named.path, named.holder)


def _short(text: str, most: int = _LONGEST) -> str:
    """A key or a path with both its ends: the whole message fits into what an error may hold."""
    line = _line(text)
    return line if len(line) <= most else f"{line[: most // 2]}...{line[-most // 2 :]}"


def _line(text: str) -> str:
    """A text of somebody else's in one line that a terminal can bear."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in text[:2000]
    )
