"""The run that another run starts from: its configuration has to describe the same model."""

from __future__ import annotations

from typing import Any

from groupwise.config import ConfigError, difference, read_json
from groupwise.experiment.schema import Experiment
from groupwise.runs.folder import run_to_start_from
from groupwise.runs.version import require_known_version


def check_start(experiment: Experiment) -> None:
    """Refuses to start from a run of another domain or another model.

    Args:
        experiment: an experiment; it passes without `start`.

    Raises:
        ConfigError: the folder holds no run, or the run's domain, model or another setting of the whole run
            differs; another version wrote the run.
    """
    if experiment.start is None:
        return
    folder = run_to_start_from(experiment.start)
    require_known_version(folder)
    domain = experiment.domain
    names = ("kind", *sorted(domain.whole_run))
    table = read_json(folder.config).get("domain")
    start_values = {name: table.get(name) for name in names} if isinstance(table, dict) else {}
    values: dict[str, Any] = {name: domain.model_dump(mode="json")[name] for name in names}
    changed = difference(start_values, values)
    if changed:
        key, (start_value, value) = next(iter(changed.items()))
        raise ConfigError(
            f"start = {experiment.start!r}: domain.{key} is {start_value!r} there and {value!r} in this run; start from"
            " a run of the same model, or leave start out"
        )
