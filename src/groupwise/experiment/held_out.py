"""What a run scored on each prompt of its evaluations, read from its folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from groupwise.config import ConfigError, read_json
from groupwise.runs import read_lines, reward_weights, score
from groupwise.runs.folder import RunFolder

WHOLE = "all prompts"
"""The key of a score that exists only as a mean over prompts."""


@final
@dataclass(frozen=True)
class HeldOut:
    """One evaluation of a run.

    Args:
        metric: the metric that decides, `mode/name`.
        step: when.
        records: what was recorded of each completion.
        mean: the metric itself.

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
        """Prompt key -> mean over its completions; one entry `WHOLE` where the metric is no mean over completions.

        Args:
            weights: reward -> weight, for the metric `mode/reward`.

        Returns:
            one score a prompt.
        """
        mode, _, name = self.metric.partition("/")
        found: dict[str, list[float]] = defaultdict(list)
        for record in self.records:
            if record.get("mode") == mode:
                value = score(record, name, weights)
                if value is not None:
                    found[record["key"]].append(value)
        if not found:
            return {} if self.mean is None else {WHOLE: self.mean}
        return {key: sum(values) / len(values) for key, values in found.items()}


def evaluations(run: Path) -> dict[int, list[dict[str, Any]]]:
    """Step -> records of the evaluation there, in order.

    Args:
        run: the run folder.

    Returns:
        an entry for every evaluation that recorded what the model did; lines that are broken or cut off are left out.

    Example:
        >>> evaluations(Path("nowhere"))
        {}
    """
    numbered = {
        path.stem.removeprefix("evaluation-"): path for path in RunFolder(run).rollouts.glob("evaluation-*.jsonl")
    }
    found = {int(step): path for step, path in numbered.items() if step.isdecimal()}
    return {step: read_lines(found[step]).rows for step in sorted(found)}


def read_summary(run: Path) -> dict[str, Any]:
    """What `summary.json` holds.

    Args:
        run: the run folder.

    Raises:
        ConfigError: the run has none: it has not ended.

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
    """Prompt key -> the run's deciding metric at its end.

    Args:
        run: the run folder.

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
