"""Between which values a score of an evaluation lies, so that no interval leaves them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from groupwise.runs import reward_weights

Bounds = tuple[float, float]


def score_bounds(config: Mapping[str, Any], metric: str, scores: Iterable[float]) -> Bounds | None:
    """Returns the lowest and the highest value that a metric of an evaluation can have, or `None` where none are known.

    A reward states its bounds (`ends`), and the weighted sum of rewards has the sums of theirs. Other metrics of a
    domain are shares, such as an accuracy, where no score lies outside 0 and 1. Bounds that a score contradicts are not
    believed: a reward without bounds states 0 and 1.

    Args:
        config: what `config.json` of the run holds.
        metric: `mode/name`, as the summary names it.
        scores: one a prompt, of every run that is compared.

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
        parts = [
            (_ends(rewards[part]), weight)
            for part, weight in reward_weights(config).items()
            if weight != 0 and part in rewards
        ]
        scaled = [sorted((weight * ends[0], weight * ends[1])) for ends, weight in parts if ends is not None]
        bounds = (sum(low for low, _ in scaled), sum(high for _, high in scaled)) if len(scaled) == len(parts) else None
    else:
        bounds = (0.0, 1.0)
    return bounds if bounds is not None and all(bounds[0] <= score <= bounds[1] for score in scores) else None


def difference_bounds(bounds: Bounds | None) -> Bounds | None:
    """Returns the bounds of a difference of two such scores.

    Args:
        bounds: of each score.

    Example:
        >>> difference_bounds((0.0, 1.0)), difference_bounds(None)
        ((-1.0, 1.0), None)
    """
    return None if bounds is None else (bounds[0] - bounds[1], bounds[1] - bounds[0])


def _ends(table: Any) -> Bounds | None:
    """The bounds that a reward's own settings give; `None` for what is no reward of this version."""
    from groupwise.reward import RewardConfig

    try:
        return TypeAdapter(RewardConfig).validate_python(table).ends
    except ValidationError:
        return None
