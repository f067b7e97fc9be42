"""The run that another run starts from: its configuration has to describe the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groupwise.config import ConfigError, difference, read_json
from groupwise.experiment.schema import Experiment
from groupwise.runs import RunFolder


def check_start(experiment: Experiment) -> None:
    """Refuses to start from a run of another domain or another model.

    Args:
        experiment: any; one without `start` passes.

    Raises:
        ConfigError: no run is there, or its domain, its model or another setting of the whole run differs.
    """
    if experiment.start is None:
        return
    folder = RunFolder(Path(experiment.start))
    if not folder.is_run:
        raise ConfigError(
            f"start = {experiment.start!r}: no run is there (no config.json); give the folder of a run that did a"
            " warm-up"
        )
    domain = experiment.domain
    names = ("kind", *sorted(domain.whole_run))
    table = read_json(folder.config).get("domain")
    before = {name: table.get(name) for name in names} if isinstance(table, dict) else {}
    now: dict[str, Any] = {name: domain.model_dump(mode="json")[name] for name in names}
    changed = difference(before, now)
    if changed:
        key, (there, here) = next(iter(changed.items()))
        raise ConfigError(
            f"start = {experiment.start!r}: domain.{key} is {there!r} there and {here!r} in this run; start from a run"
            " of the same model, or leave start out"
        )
