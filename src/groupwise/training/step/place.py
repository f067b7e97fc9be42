"""Whether rewards follow the place in the batch at which members were scored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from groupwise.statistics import Correlation, Statistic


def place_correlations(groups: Sequence[int], rewards: Sequence[float | None]) -> dict[str, Statistic]:
    """Correlates rewards with places. Prompts come in a random order and the members of a group are drawn alike, so
    that neither a member's place in its group nor that of its group in the batch says anything of a reward that is a
    function of prompt and answer.

    Args:
        groups: of each member, in the order in which the rewards were computed.
        rewards: of each member; members without one are left out.

    Returns:
        `groups/place_correlation`, of a member's reward and its place, both less their group's mean; and
        `batch/place_correlation`, of a group's mean reward and its place in the batch. Nothing where all are equal.

    Example:
        >>> correlations = place_correlations([0, 0, 1, 1], [0.0, 1.0, 2.0, 3.0])
        >>> [round(statistic.finish("value")["value"], 6) for statistic in correlations.values()]
        [1.0, 1.0]
    """
    by_group: defaultdict[int, list[float]] = defaultdict(list)
    for group, reward in zip(groups, rewards, strict=True):
        if reward is not None:
            by_group[group].append(reward)
    values = [torch.tensor(earned, dtype=torch.float64) for earned in by_group.values()]
    if not values:
        return {}
    # A flat group says nothing, and its places would only make the correlation smaller.
    spread = [earned for earned in values if earned.max() > earned.min()]
    means = torch.stack([earned.mean() for earned in values])
    between = Correlation.of(_centred(means), _places(len(means)))
    if not spread:
        return {"batch/place_correlation": between}
    inside = Correlation.of(
        torch.cat([_centred(earned) for earned in spread]), torch.cat([_places(len(earned)) for earned in spread])
    )
    return {"groups/place_correlation": inside, "batch/place_correlation": between}


def _centred(values: Tensor) -> Tensor:
    return values - values.mean()


def _places(count: int) -> Tensor:
    return _centred(torch.arange(count, dtype=torch.float64))
