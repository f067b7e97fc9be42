"""A run as tables and objects, for notebooks and scripts, and its scores on each prompt of its evaluations."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from groupwise.config import ConfigError, flatten, holding, read_json
from groupwise.runs import Run, read_lines, read_run, reward_weights, score, split_metric
from groupwise.runs.folder import RunFolder

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


# Scores of a run on each prompt of its evaluations.

WHOLE = "all prompts"
"""The key of a score that exists only as a mean over prompts."""


@final
@dataclass(frozen=True)
class HeldOut:
    """One evaluation of a run.

    Args:
        metric: the deciding metric, `mode/name`.
        step: the step after which the evaluation was made.
        records: the records of the completions.
        mean: the metric's value.

    Example:
        >>> records = [
        ...     {"key": "a", "mode": "greedy", "rewards": {"correct": 1.0}},
        ...     {"key": "a", "mode": "greedy", "rewards": {"correct": 0.0}},
        ... ]
        >>> HeldOut("greedy/correct", 10, records, 0.5).scores({})
        {'a': 0.5}
    """

    metric: str
    step: int
    records: list[dict[str, Any]]
    mean: float | None

    def scores(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Returns prompt key -> mean over its completions; one entry `WHOLE` where the metric is not a mean over
        prompts.

        Args:
            weights: reward -> weight, for the metric `mode/reward`.

        Returns:
            one score a prompt.
        """
        mode, name = split_metric(self.metric, self.records)
        values_by_prompt: dict[str, list[float]] = defaultdict(list)
        for record in self.records:
            if record.get("mode") == mode:
                value = score(record, name, weights)
                if value is not None:
                    values_by_prompt[record["key"]].append(value)
        if not values_by_prompt:
            return {} if self.mean is None else {WHOLE: self.mean}
        return {key: sum(values) / len(values) for key, values in values_by_prompt.items()}


def evaluations(run: Path) -> dict[int, list[dict[str, Any]]]:
    """Returns step -> records of the evaluation after it, by step.

    Returns:
        an entry for every evaluation with records; lines that are broken or cut off are left out.

    Example:
        >>> evaluations(Path("nowhere"))
        {}
    """
    paths_by_number = {
        path.stem.removeprefix("evaluation-"): path for path in RunFolder(run).rollouts.glob("evaluation-*.jsonl")
    }
    paths = {int(step): path for step, path in paths_by_number.items() if step.isdecimal()}
    return {step: read_lines(paths[step]).rows for step in sorted(paths)}


def read_summary(run: Path) -> dict[str, Any]:
    """Returns the content of a run's `summary.json`.

    Raises:
        ConfigError: the run has no summary, since it has not ended.

    Example:
        >>> read_summary(Path("nowhere"))
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: nowhere has no summary.json: the run has not ended; go on with `groupwise resume nowhere`
    """  # noqa: E501
    path = RunFolder(run).summary
    if not path.is_file():
        raise ConfigError(f"{run} has no summary.json: the run has not ended; go on with `groupwise resume {run}`")
    return read_json(path)


def final_scores(run: Path) -> dict[str, float]:
    """Returns prompt key -> the run's deciding metric at its end.

    Returns:
        one score a prompt of the evaluation.

    Raises:
        ConfigError: the run has not ended, reported no metric, or its folder is damaged.
    """
    summary = read_summary(run)
    if summary.get("metric") is None:
        raise ConfigError(f"{run} reported no metric of an evaluation, so there is nothing to compare")
    lost = [name for name in ("after", "steps") if summary.get(name) is None]
    if lost:
        raise ConfigError(f"{run}/summary.json has no {' and no '.join(lost)}; remove {run} and run it again")
    records = evaluations(run).get(summary["steps"], [])
    config = read_json(RunFolder(run).config)
    return HeldOut(summary["metric"], summary["steps"], records, summary["after"]).scores(reward_weights(config))
