"""The run that another run starts from: its configuration has to describe the same model."""

from __future__ import annotations

from typing import Any

from groupwise.config import ConfigError, difference, read_json
from groupwise.experiment.schema import Experiment
from groupwise.runs.folder import run_to_start_from


def check_start(experiment: Experiment) -> None:
    """Refuses to start from a run of another domain or another model.

    Args:
        experiment: any; one without `start` passes.

    Raises:
        ConfigError: no run is there, or its domain, its model or another setting of the whole run differs.
    """
    if experiment.start is None:
        return
    folder = run_to_start_from(experiment.start)
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
