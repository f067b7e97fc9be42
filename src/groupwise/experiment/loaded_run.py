"""A run as tables and objects, for notebooks and scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from groupwise.config import ConfigError, difference, flatten, holding, read_json
from groupwise.experiment.schema import Experiment
from groupwise.runs import Run, read_run
from groupwise.runs.folder import require_known_version, run_to_start_from

if TYPE_CHECKING:
    import pyarrow

    from groupwise.domain.base import Domain


@final
@dataclass(frozen=True)
class LoadedRun:
    """The content of a run folder. Its tables are Arrow tables, which `.to_pandas()` and `.to_pylist()` convert.

    Args:
        run: the run as its folder records it.
    """

    run: Run

    @property
    def config(self) -> Mapping[str, Any]:
        """The content of `config.json`: every key of the experiment."""
        return self.run.config

    @property
    def summary(self) -> Mapping[str, Any]:
        """The content of `summary.json`; empty before the run has ended."""
        return self.run.summary or {}

    @cached_property
    def metrics(self) -> pyarrow.Table:
        """One row a step, one column a metric; a cell is null where a step did not log the metric."""
        return _table(self.run.rows)

    @cached_property
    def rollouts(self) -> pyarrow.Table:
        """One row a recorded member, with its `step`; a nested key is a column with dots, for example
        `rewards.correct`.
        """
        return _table(list(self._members(self.run.rollouts)))

    @cached_property
    def evaluations(self) -> pyarrow.Table:
        """One row a record of an evaluation, with the `step` after which it was made."""
        return _table(list(self._members(self.run.evaluations)))

    @property
    def model_folder(self) -> Path:
        """The folder of the trained model, as `Domain.save` wrote it.

        Raises:
            ConfigError: the run has not ended.
        """
        folder = self.run.path / "model"
        if not folder.is_dir():
            raise ConfigError(f"{self.run.path} has no model yet; go on with `groupwise resume {self.run.path}`")
        return folder

    def domain(
        self,
        *,
        domain: Any = None,
        rewards: Any = None,
        data: Any = None,
        eval_data: Any = None,
        run_code: bool = False,
    ) -> Domain:
        """Opens the run's domain on the trained model, with `module`, `sample`, `score` and `evaluate`.

        Args:
            domain, rewards, data, eval_data: the objects that `groupwise.train` took and that no file describes.
            run_code: allows the code that the folder names.

        Raises:
            ConfigError: the run has not ended, or its folder names code that needs consent.
        """
        from groupwise.experiment.arguments import read_arguments
        from groupwise.experiment.loading import load_experiment
        from groupwise.experiment.runner import open_domain, with_model

        arguments = read_arguments(domain=domain, rewards=rewards, data=data, eval_data=eval_data)
        with holding(arguments.objects):
            experiment = load_experiment(self.run.path, run_code=run_code)
            return open_domain(with_model(experiment, self.model_folder))

    def _members(self, files: Mapping[int, Path]) -> Iterator[Mapping[str, Any]]:
        for step, path in files.items():
            for record in self.run.records(path, []):
                yield {"step": step, **flatten(record)}


def load_run(folder: str | Path) -> LoadedRun:
    """Reads the folder of a run that has ended or continues.

    Raises:
        ConfigError: the folder holds no run.

    Example:
        >>> load_run("nowhere")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: no such run folder: nowhere; runs lie in runs/ unless --out said otherwise
    """
    return LoadedRun(read_run(Path(folder)))


def _table(rows: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    """Returns a table with one column a name. A column whose values have several types holds them as JSON."""
    import pyarrow

    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pyarrow.array(values)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError, OverflowError):
            columns[name] = pyarrow.array([None if value is None else json.dumps(value) for value in values])
    return pyarrow.table(columns)


# `start = RUN`: the other run must have the same domain and model.


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
