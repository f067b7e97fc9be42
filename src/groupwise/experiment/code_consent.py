"""Consent to the code of a stranger: code that a run folder or a model folder names runs only with `--run-code`.

A configuration may name any function that Python can import, with any arguments, `subprocess:Popen` for example. A TOML
file and `key=value` items are written by the user and need no consent. A file that is in a run folder or came out of
one, a `config.json` above all, may have been written by anybody.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

from pydantic import BaseModel

from groupwise.config import ConfigError, Named, flatten, import_paths, is_object
from groupwise.experiment.catalogue import Source, find, shipped
from groupwise.experiment.schema import Experiment
from groupwise.runs.folder import RunFolder, is_run

RUN_CODE = "GROUPWISE_RUN_CODE"
"""The environment variable that has the effect of `--run-code`, for commands that programs write."""

_MOST_SHOWN = 12
_OF_A_FOLDER = ("config.json", "network.json")


@final
@dataclass(frozen=True)
class FileWithCode:
    """A file of a run folder or a model folder, with the code that it names."""

    file: Path
    code: tuple[Named, ...]


def code_of(experiment: Experiment) -> list[Named]:
    """Lists every place at which an experiment names code, inside its stages and controls too.

    Example:
        >>> from groupwise import load_experiment
        >>> [(reference.key, reference.path.name) for reference in code_of(load_experiment("language"))]
        [('domain.rewards.worked.path', 'worked')]
    """
    references = list(import_paths(experiment))
    paths = {reference.key: reference.path for reference in references}
    spans = [(f"stages.{span.name}", span) for span in experiment.plan.stages if experiment.stages]
    spans += [(f"controls.{name}", span) for name, stages in experiment.plan.controls.items() for span in stages]
    for place, span in spans:
        for reference in import_paths(span):
            nested = Named(f"{place}.set.{reference.key}", reference.path, reference.holder)
            if reference.path != paths.get(reference.key) and nested not in references:
                references.append(nested)
    return references


@cache
def shipped_code() -> frozenset[str]:
    """Returns the import paths that shipped experiments name. Each of these functions computes on what it is given and
    does nothing else, whatever its arguments, so that any configuration may run it.
    """
    text = "".join(find(name).path.read_text(encoding="utf-8") for name in shipped())
    return frozenset(re.findall(r'"(groupwise[\w.]*:\w+)"', text))


def is_foreign(source: Source) -> bool:
    """Returns whether another person may have written an experiment: one of its files is in a run folder or came out
    of one.

    A `.json` file was written by a run or a comparison, of any user. A `.toml` file was written by a person: the user,
    unless the file is in a run folder.
    """
    files = [file for file, _ in source.layers]
    folders = {folder for file in files for folder in (file.absolute().parents, file.resolve().parents)}
    in_a_run = any(RunFolder(parent).is_run and is_run(parent) for parents in folders for parent in parents)
    return in_a_run or any(file.suffix == ".json" for file in files)


def code_of_source(source: Source, code: Iterable[Named], over: Mapping[str, Any]) -> FileWithCode:
    """Returns an experiment's file with the code that the file names, without code that the command names.

    Args:
        source: the experiment as its files state it.
        code: all code that the experiment names.
        over: the changes that the command makes.
    """
    changed = set(flatten(over))
    kept = (named for named in code if not changed & {named.key, named.key.partition("[")[0]})
    return FileWithCode(source.path, tuple(kept))


def code_of_model_folders(config: BaseModel) -> Iterator[FileWithCode]:
    """Yields the files of the model folders that a configuration points at, with the code that each of them names. A
    network's class, for example, is in the folder's `network.json`.

    Args:
        config: the configuration of an experiment, or a part of it.
    """
    for file, content in _beside(config):
        yield FileWithCode(file, tuple(import_paths(content, str(file))))


def _beside(value: Any) -> Iterator[tuple[Path, BaseModel]]:
    if isinstance(value, BaseModel):
        yield from getattr(value, "configurations_beside", dict)().items()
        for field in type(value).model_fields:
            yield from _beside(getattr(value, field))
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _beside(inner)


def require_consent(files: Iterable[FileWithCode], run_code: bool = False) -> None:
    """Refuses files that name code, unless the user allows it. Functions of shipped experiments, and objects that the
    user's program holds, need no consent.

    Args:
        files: the files that name code.
        run_code: whether the command allows the code.

    Raises:
        ConfigError: code needs consent; the message names its places, and what to write.
    """
    if run_code or os.environ.get(RUN_CODE) == "1":
        return
    references = [
        (source.file, named)
        for source in files
        for named in source.code
        if named.path not in shipped_code() and not is_object(named.path)
    ]
    if not references:
        return
    file = references[0][0]
    folder = str(file.parent if file.name in _OF_A_FOLDER else file)
    places = {f"{_shown(named.key, 60)} = {_shown(named.path, 60)}": named.path for _, named in references}
    # The first place of every path comes before further places of the same path, so that a hundred repetitions of a
    # harmless path cannot push a dangerous one off the end of the list.
    firsts = {path: place for place, path in reversed(places.items())}
    shown = list(dict.fromkeys([*reversed(firsts.values()), *places]))
    more = f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    raise ConfigError(
        f"{_shown(folder, 300)} names code that would run: {', '.join(shown[:_MOST_SHOWN])}{more}; where you trust it,"
        f" write --run-code ({RUN_CODE}=1 in a job's template)"
    )


def _shown(text: str, most: int) -> str:
    """Escapes characters that would break a line or control a terminal, and cuts out the middle of a long text."""
    line = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text[:2000])
    return line if len(line) <= most else f"{line[: most // 2]}...{line[-most // 2 :]}"
