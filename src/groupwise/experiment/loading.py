"""From a name or a file and `key=value` items to an experiment."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from groupwise.config import ConfigError, check_plain, difference, only, parse_overrides
from groupwise.experiment.asked import ask, code_of, is_foreign, said_beside, said_by
from groupwise.experiment.catalogue import Source, find
from groupwise.experiment.hints import answered
from groupwise.experiment.layers import refuse_length, stack, unfold
from groupwise.experiment.outweighed import outweighed
from groupwise.experiment.schema import Experiment, read
from groupwise.experiment.slots import is_resolved, preset_slots, without_preset, written
from groupwise.processes import is_first_process

log = logging.getLogger("groupwise")


def load_experiment(
    name: str | Path, overrides: Sequence[str] | Mapping[str, Any] = (), *, run_code: bool = False
) -> Experiment:
    """The experiment of this name or path, with changes.

    Layers, the later wins: defaults of the slots, the method's preset, the file, `overrides`. A run's `config.json`
    repeats the run.

    What lies in a run folder may be anybody's: the code that it names is asked about first
    (`groupwise.experiment.asked`). `overrides` are the user's word.

    Args:
        name: a shipped experiment (`groupwise experiments`), a `.toml` file, a run folder or its `config.json`.
        overrides: `key=value` items, or a nested table.
        run_code: the code that a run folder names may run; it is not asked about again.

    Returns:
        the experiment, every key stated.

    Raises:
        ConfigError: anything that is wrong with it, all at once, before anything is computed; code that is to be asked
            about.

    Example:
        >>> experiment = load_experiment("language", ["method=dapo", "trust.high=0.3"])
        >>> experiment.objective.name, experiment.objective.trust.high
        ('dapo+edited', 0.3)
    """
    return load_source(*_found(name, overrides), run_code=run_code)


def load_source(source: Source, over: Mapping[str, Any], label: str, *, run_code: bool = False) -> Experiment:
    """Reads an experiment that is written somewhere, with changes.

    Args:
        source: the experiment as it is written.
        over: a nested table of changes.
        label: what an error calls both.
        run_code: the code that a run folder names may run; it is not asked about again.

    Raises:
        ConfigError: as `load_experiment`.
    """
    # Nothing of somebody else's is imported before its user was asked: a trust region's class would be, as the
    # experiment is read.
    foreign = is_foreign(source)
    with only() if foreign else nullcontext():
        experiment = _read(source, over, label)
        code = code_of(experiment)
    ask([*([said_by(source, code, over)] if foreign else []), *said_beside(experiment)], run_code)
    if foreign and code:
        experiment = _read(source, over, label)
    for sentence in outweighed(experiment, over) if is_first_process() else ():
        log.warning("%s", sentence)
    return experiment


def read_experiment(name: str | Path, overrides: Sequence[str] | Mapping[str, Any] = ()) -> Experiment:
    """The same experiment, of which nothing is imported and nothing may be run: for what looks at a run folder, or
    takes a part out of it.

    Args:
        name: as for `load_experiment`.
        overrides: as for `load_experiment`.

    Raises:
        ConfigError: anything that is wrong with it.

    Example:
        >>> read_experiment("language").domain.kind
        'language'
    """
    with only():
        return _read(*_found(name, overrides))


def _refuse_empty(over: Mapping[str, Any], below: Mapping[str, Any], prefix: str = "") -> None:
    """Refuses an empty table over one that is not: laid on it, it changes nothing."""
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


def _found(name: str | Path, overrides: Sequence[str] | Mapping[str, Any]) -> tuple[Source, dict[str, Any], str]:
    source = find(name)
    over = parse_overrides(overrides) if not isinstance(overrides, Mapping) else dict(overrides)
    check_plain(over, "changes")
    _refuse_empty(over, source.tree)
    label = (
        str(name)
        if not over
        else f"{name} with {' '.join(overrides) if not isinstance(overrides, Mapping) else 'changes'}"
    )
    return source, over, label


def _read(source: Source, over: Mapping[str, Any], label: str) -> Experiment:
    try:
        return _loaded(source, over, label)
    except ConfigError as error:
        raise answered(error, (*source.layers, over), label) from None


def _loaded(source: Source, over: Mapping[str, Any], label: str) -> Experiment:
    folders = [*(file.parent for file in source.files), Path()]
    tables = (*source.layers, over)
    refuse_length(tables)
    layers = [layer for table, folder in zip(tables, folders, strict=True) for layer in unfold(written(table), folder)]
    methods = {str(layer["method"]) for layer in layers if "method" in layer}
    if is_resolved(tables[0]) and len(methods) > 1:
        # A run's record states every slot; those of its method's preset do not outlast the method.
        layers[0] = without_preset(layers[0])
    return read({"name": source.name, **stack(layers)}, label)


def edits(experiment: Experiment) -> dict[str, tuple[Any, Any]]:
    """What an experiment changed in its method: dotted key -> (the preset's value, its own).

    Args:
        experiment: read from anywhere.

    Example:
        >>> edits(load_experiment("language", ["method=dapo", "divergence.kind=none", "trust.high=0.3"]))["trust.high"]
        (0.28, 0.3)
    """
    return difference(preset_slots(experiment.method), experiment.objective.model_dump(mode="json", exclude={"name"}))
