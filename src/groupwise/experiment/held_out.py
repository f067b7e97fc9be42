"""What a run scored on each held-out prompt, read from its folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from groupwise.config import ConfigError, read_json
from groupwise.runs import read_lines

WHOLE = "all held-out prompts"
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
        >>> records = [{"key": "a", "mode": "greedy", "rewards": {"correct": 1.0}}, {"key": "a", "mode": "greedy", "rewards": {"correct": 0.0}}]
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
                value = _value(record, name, weights)
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
    numbered = {path.stem.removeprefix("evaluation-"): path for path in (run / "rollouts").glob("evaluation-*.jsonl")}
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
    """
    path = run / "summary.json"
    if not path.is_file():
        raise ConfigError(f"{run} has no summary.json: the run has not ended; go on with `groupwise resume {run}`")
    return read_json(path)


def final_scores(run: Path) -> dict[str, float]:
    """Prompt key -> the run's deciding metric at its end.

    Args:
        run: the run folder.

    Returns:
        one score a held-out prompt.

    Raises:
        ConfigError: the run has not ended, reported no metric, or its folder is damaged.
    """
    summary = read_summary(run)
    if summary.get("metric") is None:
        raise ConfigError(f"{run} reported no held-out metric, so there is nothing to compare")
    lost = [name for name in ("after", "steps") if summary.get(name) is None]
    if lost:
        raise ConfigError(f"{run}/summary.json has no {' and no '.join(lost)}; remove {run} and run it again")
    records = evaluations(run).get(summary["steps"], [])
    config = read_json(run / "config.json")
    return HeldOut(summary["metric"], summary["steps"], records, summary["after"]).scores(reward_weights(config))


def reward_weights(config: Mapping[str, Any]) -> dict[str, float]:
    """Reward -> weight in the sum, of a resolved configuration; judges have none, and an environment has its own.

    Args:
        config: what `config.json` holds.

    Example:
        >>> reward_weights({"domain": {"rewards": {"brief": {"weight": 0.5}}, "environment": {"weight": 2.0}}})
        {'brief': 0.5, 'environment': 2.0}
    """
    domain = config.get("domain", {})
    rewards = {**domain.get("rewards", {}), **({"environment": environment} if (environment := domain.get("environment")) else {})}
    return {name: 0.0 if reward.get("role") == "judge" else float(reward.get("weight", 1.0)) for name, reward in rewards.items()}


def _value(record: Mapping[str, Any], name: str, weights: Mapping[str, float]) -> float | None:
    rewards = record.get("rewards", {})
    if name in rewards:
        return rewards[name]
    if name == "length":
        return record.get("num_tokens")
    if name == "reward":
        # Beside rewards a record may hold judges and measures, which only the domain can tell apart: its own sum counts where it gives one.
        if "reward" in record:
            return record["reward"]
        return _total((rewards.get(each), weights.get(each, 1.0)) for each in rewards)
    return None


def _total(parts: Iterable[tuple[float | None, float]]) -> float | None:
    """The weighted sum, on the scale of a complete one where a reward is missing."""
    listed = [(value, weight) for value, weight in parts if weight != 0]
    here = [(value, weight) for value, weight in listed if value is not None]
    if not here:
        return None
    return sum(value * weight for value, weight in here) * sum(abs(weight) for _, weight in listed) / sum(abs(weight) for _, weight in here)
