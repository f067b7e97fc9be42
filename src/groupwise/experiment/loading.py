"""Loading of an experiment from a name or a file, with `key=value` changes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError, check_plain, difference, parse_overrides, restrict_code, validate
from groupwise.experiment.catalogue import Source, find
from groupwise.experiment.code_consent import (
    code_of,
    code_of_model_folders,
    code_of_source,
    is_foreign,
    require_consent,
)
from groupwise.experiment.counterparts import with_counterparts
from groupwise.experiment.layers import refuse_length, stack, unfold
from groupwise.experiment.schema import Experiment, preset_slots, stage_overrides
from groupwise.objective.objective import Slots
from groupwise.processes import is_first_process
from groupwise.runs.folder import RunFolder, require_known_version

log = logging.getLogger("groupwise")


def load_experiment(
    name: str | Path | Source, overrides: Sequence[str] | Mapping[str, Any] = (), *, run_code: bool = False
) -> Experiment:
    """Returns the experiment of a name or path, with changes.

    The layers, of which a later one wins, are the defaults of the slots, the method's preset, the file, and
    `overrides`. The `config.json` of a run repeats the run.

    A run folder may come from another person, so that code which it names needs consent
    (`groupwise.experiment.code_consent`). Code in `overrides` was named by the user and needs none.

    Args:
        name: a shipped experiment (`groupwise experiments`), a `.toml` file, a run folder or its `config.json`; or what
            `groupwise.experiment.catalogue.find` returned for one.
        overrides: `key=value` items, or a nested table.
        run_code: allows the code that a run folder names.

    Returns:
        the experiment, with every key stated.

    Raises:
        ConfigError: all mistakes of the experiment at once, before anything is computed; or code that needs consent.

    Example:
        >>> experiment = load_experiment("language", ["method=dapo", "trust.high=0.3"])
        >>> experiment.objective.name, experiment.objective.trust.high
        ('dapo+edited', 0.3)
    """
    return load_source(*_found(name, overrides), run_code=run_code)


def load_source(source: Source, over: Mapping[str, Any], label: str, *, run_code: bool = False) -> Experiment:
    """Reads an experiment from its files, with changes.

    Args:
        source: the experiment as its files state it.
        over: a nested table of changes.
        label: the name of the experiment with its changes in an error.
        run_code: allows the code that a run folder names.

    Raises:
        ConfigError: as `load_experiment`.
    """
    # Reading an experiment imports the classes that it names, a trust region's for example; `restrict_code` prevents
    # this until the user has given consent.
    foreign = is_foreign(source)
    with restrict_code() if foreign else nullcontext():
        experiment = _read(source, over, label)
        code = code_of(experiment)
    require_consent(
        [*([code_of_source(source, code, over)] if foreign else []), *code_of_model_folders(experiment)], run_code
    )
    if foreign and code:
        experiment = _read(source, over, label)
    for sentence in stage_overrides(experiment, over) if is_first_process() else ():
        log.warning("%s", sentence)
    return experiment


def read_experiment(
    name: str | Path, overrides: Sequence[str] | Mapping[str, Any] = (), *, allowed: Collection[str] = ()
) -> Experiment:
    """Returns the experiment of a name or path without importing the code that it names. Such an experiment cannot be
    run; it serves to look at a run folder, or to take a part out of it.

    Args:
        name, overrides: as for `load_experiment`.
        allowed: import paths of code that may be imported nevertheless.

    Raises:
        ConfigError: all mistakes of the experiment at once.

    Example:
        >>> read_experiment("language").domain.kind
        'language'
    """
    with restrict_code(allowed):
        return _read(*_found(name, overrides))


def _refuse_empty(over: Mapping[str, Any], below: Mapping[str, Any], prefix: str = "") -> None:
    """Refuses a change to an empty table where the experiment has a full one: merged over it, it changes nothing."""
    for key, value in over.items():
        table = below.get(key)
        if not isinstance(value, Mapping) or not isinstance(table, Mapping) or not table:
            continue
        if not value:
            raise ConfigError(
                f"{prefix}{key} = {{}}: an empty table changes nothing; write {prefix}{key}=null to take away what is"
                f" there ({', '.join(map(str, list(table)[:5]))})"
            )
        _refuse_empty(value, table, f"{prefix}{key}.")


def _found(
    name: str | Path | Source, overrides: Sequence[str] | Mapping[str, Any]
) -> tuple[Source, dict[str, Any], str]:
    source = name if isinstance(name, Source) else find(name)
    if source.path.name == RunFolder(source.path.parent).config.name:
        require_known_version(RunFolder(source.path.parent))
    over = parse_overrides(overrides) if not isinstance(overrides, Mapping) else dict(overrides)
    check_plain(over, "changes")
    _refuse_empty(over, source.tree)
    shown = source.name if isinstance(name, Source) else str(name)
    label = (
        shown
        if not over
        else f"{shown} with {' '.join(overrides) if not isinstance(overrides, Mapping) else 'changes'}"
    )
    return source, over, label


def _read(source: Source, over: Mapping[str, Any], label: str) -> Experiment:
    tables = (*source.layers, over)
    # Paths in the changes are relative to the working directory.
    folders = [*(file.parent for file in source.files), Path()]
    try:
        refuse_length(tables)
        layers = [layer for table, folder in zip(tables, folders, strict=True) for layer in unfold(table, folder)]
        return validate(Experiment, {"name": source.name, **stack(layers)}, label)
    except ConfigError as error:
        raise with_counterparts(error, tables, label) from None


def edits(experiment: Experiment) -> dict[str, tuple[Any, Any]]:
    """Returns the keys that an experiment changes in its method: dotted key -> (the preset's value, the experiment's).

    Example:
        >>> edits(load_experiment("language", ["method=dapo", "divergence.kind=none", "trust.high=0.3"]))["trust.high"]
        (0.28, 0.3)
    """
    return difference(
        preset_slots(experiment.method), experiment.model_dump(mode="json", include=set(Slots.model_fields))
    )
