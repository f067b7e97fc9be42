"""Statistics of a round of sampling: its decisions, and signs of a reward that is noisy or follows a member's place."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from groupwise.domain.protocol import Samples
from groupwise.objective import Batch
from groupwise.reward.completions import Content
from groupwise.statistics import Correlation, Mean, Quotient, Statistic, Total


def round_statistics(
    samples: Samples, batch: Batch, totals: Sequence[float | None], *, density: bool
) -> dict[str, Statistic]:
    """Returns the statistics of sampled and rewarded members.

    Args:
        batch: the members, compared.
        totals: the weighted sum of each member's rewards.
        density: whether log-probs are of densities, whose surprisal means nothing.
    """
    table, groups = samples.rewards, samples.place.tolist()
    statistics = dict(batch.statistics)
    statistics["num_decisions"] = Total.of(samples.mask.sum())
    if not density:
        statistics["surprisal"] = Mean.of(-samples.old_log_prob, samples.mask)
    statistics["padding_share/sampling"] = Mean.share(~samples.mask, torch.ones_like(samples.mask))
    if samples.behaviour_log_prob is not None:
        gap = (samples.old_log_prob - samples.behaviour_log_prob).abs()
        statistics["sampling/sampling_logp_difference/mean"] = Mean.of(gap, samples.mask)
    if table.contents:
        num_distinct = len(set(zip(groups, (content.digest for content in table.contents), strict=True)))
        statistics["completions/distinct"] = Mean.ratio(
            torch.tensor(float(num_distinct)), torch.tensor(float(len(table.contents)))
        )
        if (noise := copies_noise(groups, table.contents, totals)) is not None:
            statistics["groups/copies_noise"] = noise
        if repeated := [content.repetition for content in table.contents if content.repetition is not None]:
            statistics["completions/repetition"] = _mean(repeated)
    statistics |= place_correlations(groups, totals)
    for event in table.events:
        name = f"rewards/{event.reward}/num_{event.name}"
        count = Total.of(torch.tensor(float(event.count)))
        statistics[name] = statistics[name] + count if name in statistics else count
    return statistics | {f"logged/{name}": _mean(values) for name, values in table.logged.items()}


def _mean(values: Sequence[float]) -> Mean:
    numbers = torch.tensor(values, dtype=torch.float64)
    return Mean.of(numbers, torch.ones_like(numbers, dtype=torch.bool))


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


_ROUNDING = 1e-5
"""Differences of rewards below this share of their size: rounding in a reward that is computed in batches."""


def copies_noise(
    groups: Sequence[int], contents: Sequence[Content], rewards: Sequence[float | None]
) -> Quotient | None:
    """Compares equal members of a group with all its members: the mean squared difference of rewards over pairs that
    are equal, divided by that over all pairs.

    Groups count that have equal members and whose rewards differ. A reward that is a function of prompt and answer
    gives 0. One that is drawn, or that belongs to other members, gives about 1.

    Args:
        groups: of each member.
        contents: of each member.
        rewards: of each member; members without one are left out.

    Returns:
        the statistic; `None` where no group has two equal members and rewards that differ.

    Example:
        >>> yes, no = Content(1), Content(2)
        >>> copies_noise([0, 0, 0, 0], [yes, yes, no, no], [1.0, 1.0, 0.0, 0.0]).finish("noise")
        {'noise': 0.0}
        >>> copies_noise([0, 0, 0, 0], [yes, yes, no, no], [1.0, 0.0, 1.0, 0.0]).finish("noise")
        {'noise': 1.5}
    """
    members: defaultdict[int, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for group, content, reward in zip(groups, contents, rewards, strict=True):
        if reward is not None:
            members[group][content.digest].append(reward)
    pairs, equal_pairs = [], []
    for by_content in members.values():
        everyone = [reward for copies in by_content.values() for reward in copies]
        spread = max(everyone) - min(everyone)
        if len(by_content) == len(everyone) or not spread > _ROUNDING * max(map(abs, everyone)):
            continue
        pairs.append(_differences(everyone))
        equal_pairs += map(_differences, by_content.values())
    if not pairs:
        return None
    (differences, num_pairs), (equal, num_equal) = map(_sums, (pairs, equal_pairs))
    return Quotient.of(equal, num_equal, differences, num_pairs)


def _differences(rewards: Sequence[float]) -> tuple[float, int]:
    """Returns the sum of squared differences over all pairs, and how many pairs there are."""
    count = len(rewards)
    # Less the first, so that equal numbers give exactly 0.
    moved = [reward - rewards[0] for reward in rewards]
    return count * math.fsum([value * value for value in moved]) - math.fsum(moved) ** 2, count * (count - 1) // 2


def _sums(pairs: Sequence[tuple[float, int]]) -> tuple[float, int]:
    return math.fsum([difference for difference, _ in pairs]), sum(count for _, count in pairs)
