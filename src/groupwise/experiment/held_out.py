"""Scores of a run on each prompt of its evaluations, read from the run folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from groupwise.config import ConfigError, read_json
from groupwise.runs import read_lines, reward_weights, score, split_metric
from groupwise.runs.folder import RunFolder

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
