"""Consent to code that a file of another person names: the user is asked before any of it runs.

A configuration may name any function that Python can import, with any arguments, `subprocess:Popen` for example. A TOML
file and `key=value` items are written by the user and need no consent. A file that lies in a run folder or came out of
one, a `config.json` above all, may have been written by anybody.
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
from groupwise.runs.folder import RunFolder, is_run

log = logging.getLogger("groupwise")

RUN_CODE = "GROUPWISE_RUN_CODE"
"""The environment variable that has the effect of `--run-code`, for commands that templates write."""

SAFE = frozenset(
    tomllib.loads((resources.files("groupwise.presets") / "harmless.toml").read_text(encoding="utf-8"))["names"]
)
"""Import paths that any configuration may run without consent, as `harmless.toml` lists them. The package's name at the
beginning of a path proves nothing: `groupwise_look.compare.grids:subprocess.Popen` begins with it.
"""

_MOST_SHOWN = 12
_LONGEST = 60
_LONGEST_FOLDER = 300
_OF_A_FOLDER = ("config.json", "network.json")


@final
@dataclass(frozen=True)
class FileWithCode:
    """A file that names code.

    Args:
        content: the file's JSON-able content, by which the user's list of trusted files knows the file.
        code: the import paths that the content names.
    """

    file: Path
    content: Any
    code: tuple[Named, ...]


def code_of(experiment: Experiment) -> list[Named]:
    """Lists every place at which an experiment names code, inside its stages and controls too, with keys as a person
    writes them.

    Example:
        >>> from groupwise import load_experiment
        >>> [(reference.key, reference.path.name) for reference in code_of(load_experiment("language"))]
        [('domain.rewards.worked.path', 'worked')]
    """
    references = [_as_written(reference) for reference in import_paths(experiment)]
    experiment_paths = {reference.key: reference.path for reference in references}
    spans = [
        (f"stages.{stage.name}", settings) for stage, settings in zip(experiment.stages, experiment.spans, strict=False)
    ]
    spans += [(f"controls.{name}", settings) for name in experiment.controls for settings in experiment.control(name)]
    for place, settings in spans:
        for reference in map(_as_written, import_paths(settings)):
            if reference.path != experiment_paths.get(reference.key):
                nested = Named(f"{place}.set.{reference.key}", reference.path, reference.holder)
                references += [] if nested in references else [nested]
    return references


def is_foreign(source: Source) -> bool:
    """Returns whether another person may have written an experiment: one of its files lies in a run folder or came out
    of one.

    A `.json` file was written by a run or a comparison, of any user. A `.toml` file was written by a person: the user,
    unless the file lies in a run folder.
    """
    return any(
        file.suffix == ".json" or _in_a_run(file.parent) or _in_a_run(file.resolve().parent) for file in source.files
    )


def code_of_source(source: Source, code: Iterable[Named], over: Mapping[str, Any]) -> FileWithCode:
    """Returns an experiment's file with the code that the file names, without code that the command names.

    Args:
        source: the experiment as its files state it.
        code: all code that the experiment names.
        over: the changes that the command makes.
    """
    changed_keys = set(flatten(over))
    return FileWithCode(
        source.path,
        list(source.layers),
        tuple(
            reference
            for reference in code
            if reference.key not in changed_keys and reference.key.partition("[")[0] not in changed_keys
        ),
    )


def code_of_model_folders(config: BaseModel, allowed: Sequence[Named] = ()) -> Iterator[FileWithCode]:
    """Yields the files of the model folders that a configuration points at, with the code that each of them names. A
    network's class, for example, stands in the folder's `network.json`.

    Args:
        config: the configuration of an experiment, or a part of it.
        allowed: code that runs in any case; a folder may name it with the same arguments.
    """
    allowed_holders = [reference.holder for reference in allowed]
    for file, content in _beside(config):
        code = tuple(
            reference for reference in import_paths(content, str(file)) if reference.holder not in allowed_holders
        )
        yield FileWithCode(file, content.model_dump(mode="json"), code)


def require_consent(files: Iterable[FileWithCode], run_code: bool = False) -> None:
    """Refuses files that name code, unless the user allows the code, wrote the files, or the code is listed in `SAFE`.

    Args:
        files: the files that name code.
        run_code: whether the command allows the code; the files are then noted in the user's list, and need no consent
            again as long as they stay in their folders.

    Raises:
        ConfigError: code needs consent; the message names every place, its code, and what to write.
    """
    files_with_references = [
        (source_file, references)
        for source_file in files
        if (references := [reference for reference in source_file.code if not _is_safe(reference.path)])
    ]
    if run_code:
        for source_file, _ in files_with_references if is_first_process() else ():
            remember(source_file.file, source_file.content)
        return
    if os.environ.get(RUN_CODE) == "1":
        return
    importable = [
        (source_file, references)
        for source_file, references in files_with_references
        if _works_inside(source_file.file)
    ]
    if refused := importable or [
        (source_file, references)
        for source_file, references in files_with_references
        if not is_authored(source_file.file, source_file.content)
    ]:
        raise ConfigError(
            _question(
                refused,
                (
                    "the working directory lies in a run folder, whose own files would be imported"
                    if importable
                    else "you did not make it"
                ),
            )
        )


def needs_consent(experiment: Experiment) -> bool:
    """Returns whether a run folder of this experiment would need consent from another user.

    Example:
        >>> from groupwise import load_experiment
        >>> needs_consent(load_experiment("language"))
        False
    """
    return any(not _is_safe(reference.path) for reference in code_of(experiment))


def _is_safe(path: ImportPath) -> bool:
    """Returns whether code may run without consent: `SAFE` lists its path, or it is an object of the user's program."""
    return path in SAFE or is_object(path)


def remember(file: Path, content: Any) -> None:
    """Writes a file that names code into the user's list of trusted files; where the list cannot be written, warns that
    consent will be asked for again.

    Args:
        content: the file's JSON-able content.
    """
    if why := note_authored(file, content):
        log.warning("%s; going on with %s will need --run-code", why, file.parent)


def _question(refused: Sequence[tuple[FileWithCode, Sequence[Named]]], why: str) -> str:
    first_file = refused[0][0].file
    places = {
        f"{_short(reference.key)} = {_short(reference.path)}": reference.path
        for _, references in refused
        for reference in references
    }
    # The first place of every path comes before further places of the same path, so that a hundred repetitions of a
    # harmless path cannot push a dangerous one off the end of the list.
    first_places = {path: place for place, path in reversed(places.items())}
    shown_places = list(dict.fromkeys([*reversed(first_places.values()), *places]))
    more = f" and {len(shown_places) - _MOST_SHOWN} more" if len(shown_places) > _MOST_SHOWN else ""
    folder = first_file.parent if first_file.name in _OF_A_FOLDER else first_file
    return (
        f"{_short(str(folder), _LONGEST_FOLDER)} names code that would run, and {why}:"
        f" {', '.join(shown_places[:_MOST_SHOWN])}{more}; where you trust it, write --run-code ({RUN_CODE}=1 in a job's"
        " template)"
    )


def _works_inside(file: Path) -> bool:
    """Returns whether the working directory lies in a run folder, this one or another. Python looks for modules in the
    working directory too, so it would import the run folder's files.
    """
    working_directory = Path.cwd().resolve()
    return _in_a_run(working_directory) or (
        file.name in _OF_A_FOLDER and file.parent.resolve() in (working_directory, *working_directory.parents)
    )


def _in_a_run(folder: Path) -> bool:
    absolute = folder.absolute()
    return any(RunFolder(parent).is_run and is_run(parent) for parent in (absolute, *absolute.parents))


def _beside(value: Any) -> Iterator[tuple[Path, BaseModel]]:
    if isinstance(value, BaseModel):
        yield from getattr(value, "configurations_beside", dict)().items()
        for field in type(value).model_fields:
            yield from _beside(getattr(value, field))
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _beside(inner)


def _as_written(reference: Named) -> Named:
    return Named(reference.key.removeprefix("objective."), reference.path, reference.holder)


def _short(text: str, most: int = _LONGEST) -> str:
    """Cuts the middle out of a long key or path, so that the whole message fits into an error."""
    line = _line(text)
    return line if len(line) <= most else f"{line[: most // 2]}...{line[-most // 2 :]}"


def _line(text: str) -> str:
    """Escapes the characters of a foreign text that would break a line or control a terminal."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text[:2000]
    )
