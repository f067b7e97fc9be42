"""The bounds of an evaluation's scores, which no interval leaves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from groupwise.runs import reward_weights

Bounds = tuple[float, float]


def score_bounds(config: Mapping[str, Any], metric: str, scores: Iterable[float]) -> Bounds | None:
    """Returns the lowest and the highest value that a metric of an evaluation can have, or `None` where none are known.

    A reward states its bounds (`ends`), and the bounds of the weighted sum of rewards are the weighted sums of their
    bounds. Other metrics of a domain are shares, an accuracy for example, unless a score lies outside 0 and 1. Bounds
    that a score contradicts are ignored: a reward without bounds states 0 and 1.

    Args:
        config: the content of the run's `config.json`.
        metric: `mode/name`, as the summary names it.
        scores: one score a prompt, of every run that is compared.

    Example:
        >>> config = {
        ...     "domain": {"rewards": {"correct": {"kind": "exact_answer"}, "psnr": {"kind": "psnr", "weight": 0.5}}}
        ... }
        >>> score_bounds(config, "greedy/correct", [0.0, 1.0]), score_bounds(config, "restored/psnr", [27.5])
        ((0.0, 1.0), None)
        >>> score_bounds(config, "greedy/reward", [0.5]), score_bounds(config, "selected/accuracy", [0.5])
        ((0.0, 1.5), (0.0, 1.0))
    """
    name = metric.rpartition("/")[2]
    domain = config.get("domain")
    table = domain.get("rewards") if isinstance(domain, Mapping) else None
    rewards = (
        {key: reward for key, reward in table.items() if isinstance(reward, Mapping)}
        if isinstance(table, Mapping)
        else {}
    )
    if name in rewards:
        bounds = _ends(rewards[name])
    elif name == "reward" and rewards:
        weighted_ends = [
            (_ends(rewards[reward_name]), weight)
            for reward_name, weight in reward_weights(config).items()
            if weight != 0 and reward_name in rewards
        ]
        scaled = [sorted((weight * ends[0], weight * ends[1])) for ends, weight in weighted_ends if ends is not None]
        bounds = (
            (sum(low for low, _ in scaled), sum(high for _, high in scaled))
            if len(scaled) == len(weighted_ends)
            else None
        )
    else:
        bounds = (0.0, 1.0)
    return bounds if bounds is not None and all(bounds[0] <= score <= bounds[1] for score in scores) else None


def difference_bounds(bounds: Bounds | None) -> Bounds | None:
    """Returns the bounds of the difference of two scores.

    Args:
        bounds: the bounds of each score.

    Example:
        >>> difference_bounds((0.0, 1.0)), difference_bounds(None)
        ((-1.0, 1.0), None)
    """
    return None if bounds is None else (bounds[0] - bounds[1], bounds[1] - bounds[0])


def _ends(table: Any) -> Bounds | None:
    """Returns the bounds that a reward's settings give; `None` for a table that is no reward of this version."""
    from groupwise.reward import RewardConfig

    try:
        return TypeAdapter(RewardConfig).validate_python(table).ends
    except ValidationError:
        return None
