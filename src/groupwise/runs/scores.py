"""The score of an evaluation's record by a metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def score(record: Mapping[str, Any], name: str, weights: Mapping[str, float]) -> float | None:
    """Returns a record's value of a metric; `None` where the record has no such value.

    Args:
        record: one line of `rollouts/evaluation-STEP.jsonl`.
        name: the metric without its mode: a reward's name, `length`, or `reward` for the weighted sum.
        weights: reward -> weight in the sum; 1 for a reward that is absent here.

    Example:
        >>> record = {"rewards": {"correct": 1.0, "brief": 0.5}, "num_tokens": 3}
        >>> [score(record, name, {"brief": 2.0}) for name in ("correct", "length", "reward", "other")]
        [1.0, 3, 2.0, None]
    """
    rewards = record.get("rewards")
    rewards = rewards if isinstance(rewards, Mapping) else {}
    if name in rewards:
        return rewards[name]
    if name == "length":
        return record.get("num_tokens")
    if name == "reward":
        # Beside rewards a record may hold judges and measures. Only the domain can tell them apart, so that its sum
        # takes precedence where the record has one.
        if "reward" in record:
            return record["reward"]
        return _total((rewards.get(reward_name), weights.get(reward_name, 1.0)) for reward_name in rewards)
    return None


def split_metric(metric: str, records: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """Returns the mode and the name of a metric of an evaluation: `SET/MODE/NAME`, or `MODE/NAME` without a set's name.

    Args:
        records: of the evaluation; their modes tell where the name begins, which may have a `/` too.

    Example:
        >>> split_metric("hard/greedy/correct", [{"mode": "hard/greedy"}]), split_metric("greedy/a/b", [{}])
        (('hard/greedy', 'correct'), ('greedy', 'a/b'))
    """
    modes = {mode for record in records if isinstance(mode := record.get("mode"), str)}
    mode = max((mode for mode in modes if metric.startswith(f"{mode}/")), key=len, default=metric.partition("/")[0])
    return mode, metric[len(mode) + 1 :]


def reward_weights(config: Mapping[str, Any]) -> dict[str, float]:
    """Returns reward -> weight in the sum, from a resolved configuration; the weight of a judge is 0, and an
    environment states its weight.

    Args:
        config: the table in `config.json`.

    Example:
        >>> reward_weights({"domain": {"rewards": {"brief": {"weight": 0.5}}, "environment": {"weight": 2.0}}})
        {'brief': 0.5, 'environment': 2.0}
    """
    domain = config.get("domain", {})
    rewards = domain.get("rewards")
    # A domain of another package may use these keys for something else.
    tables = {**(rewards if isinstance(rewards, Mapping) else {}), "environment": domain.get("environment")}
    return {
        name: 0.0 if reward.get("role") == "judge" else float(reward.get("weight", 1.0))
        for name, reward in tables.items()
        if isinstance(reward, Mapping) and reward
    }


def _total(weighted_values: Iterable[tuple[float | None, float]]) -> float | None:
    """Returns the weighted sum; where a reward is missing, the sum of the others is scaled to the total weight."""
    counted = [(value, weight) for value, weight in weighted_values if weight != 0]
    present = [(value, weight) for value, weight in counted if value is not None]
    if not present:
        return None
    return (
        sum(value * weight for value, weight in present)
        * sum(abs(weight) for _, weight in counted)
        / sum(abs(weight) for _, weight in present)
    )
