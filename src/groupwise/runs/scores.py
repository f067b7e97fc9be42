"""What a record of an evaluation scores by a metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def score(record: Mapping[str, Any], name: str, weights: Mapping[str, float]) -> float | None:
    """A record's value of a metric; `None` where it has none.

    Args:
        record: one line of `rollouts/evaluation-STEP.jsonl`.
        name: of the metric, without its mode: a reward's, `length`, or `reward` for the weighted sum.
        weights: reward -> weight in that sum.

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
        # Beside rewards a record may hold judges and measures, which only the domain can tell apart: its own sum counts
        # where it gives one.
        if "reward" in record:
            return record["reward"]
        return _total((rewards.get(each), weights.get(each, 1.0)) for each in rewards)
    return None


def reward_weights(config: Mapping[str, Any]) -> dict[str, float]:
    """Reward -> weight in the sum, of a resolved configuration; judges have none, and an environment has its own.

    Args:
        config: what `config.json` holds.

    Example:
        >>> reward_weights({"domain": {"rewards": {"brief": {"weight": 0.5}}, "environment": {"weight": 2.0}}})
        {'brief': 0.5, 'environment': 2.0}
    """
    domain = config.get("domain", {})
    rewards = domain.get("rewards")
    # Keys of these names may mean something else in the settings of another package's domain.
    tables = {**(rewards if isinstance(rewards, Mapping) else {}), "environment": domain.get("environment")}
    return {
        name: 0.0 if reward.get("role") == "judge" else float(reward.get("weight", 1.0))
        for name, reward in tables.items()
        if isinstance(reward, Mapping) and reward
    }


def _total(parts: Iterable[tuple[float | None, float]]) -> float | None:
    """The weighted sum, on the scale of a complete one where a reward is missing."""
    listed = [(value, weight) for value, weight in parts if weight != 0]
    here = [(value, weight) for value, weight in listed if value is not None]
    if not here:
        return None
    return (
        sum(value * weight for value, weight in here)
        * sum(abs(weight) for _, weight in listed)
        / sum(abs(weight) for _, weight in here)
    )
