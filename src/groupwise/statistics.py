"""Additive statistics: sums that add over micro-batches and processes, and become numbers only when they are logged.

Nothing here calls `.item()` until `finish`, so the hot path never waits for a device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import final

import torch
from torch import Tensor

Reduce = Callable[[Tensor], Tensor]


def alone(tensor: Tensor) -> Tensor:
    """The sum over processes of a process that is alone: the tensor itself."""
    return tensor


class Statistic(ABC):
    """One additive statistic: a vector of fp64 sums and the rule that turns the whole sum into numbers."""

    def __init__(self, sums: Tensor) -> None:
        self.sums = sums

    def __add__(self, other: Statistic) -> Statistic:
        return type(self)(self.sums + other.sums.to(self.sums.device))

    @abstractmethod
    def finish(self, name: str) -> dict[str, float]:
        """The numbers of the whole sum, by metric name. A statistic over nothing gives no number."""


def _count(where: Tensor) -> Tensor:
    return where.count_nonzero().to(torch.float64)


def _kept(values: Tensor, where: Tensor) -> Tensor:
    return torch.where(where, values.detach(), torch.zeros((), dtype=values.dtype, device=values.device))


@final
class Mean(Statistic):
    """`sum(x) / count`."""

    @staticmethod
    def of(values: Tensor, where: Tensor) -> Mean:
        """The mean of `values` over the places where `where` is true (NaN elsewhere has no effect)."""
        return Mean(torch.stack([_kept(values, where).sum().to(torch.float64), _count(where)]))

    @staticmethod
    def share(hits: Tensor, where: Tensor) -> Mean:
        """The share of the places of `where` at which `hits` holds."""
        return Mean(torch.stack([_count(hits & where), _count(where)]))

    @staticmethod
    def ratio(total: Tensor, count: Tensor) -> Mean:
        """`total / count` of two scalars that both add."""
        return Mean(torch.stack([total.detach().to(torch.float64).reshape(()), count.detach().to(torch.float64).reshape(())]))

    @staticmethod
    def number(value: float) -> Mean:
        """A number that is the same in every part."""
        return Mean(torch.tensor([value, 1.0], dtype=torch.float64))

    def finish(self, name: str) -> dict[str, float]:
        total, count = self.sums.tolist()
        return {name: total / count} if count > 0 else {}


@final
class Total(Statistic):
    """`sum(x)`: counts of events."""

    @staticmethod
    def of(value: Tensor) -> Total:
        return Total(value.detach().to(torch.float64).reshape(1))

    def finish(self, name: str) -> dict[str, float]:
        return {name: float(self.sums)}


_ROUNDING = 1e-13


def _moments(values: Tensor, where: Tensor) -> Tensor:
    kept = _kept(values, where).to(torch.float64).reshape(-1)
    return torch.stack([_count(where), kept.sum(), kept.dot(kept)])


def _variance(count: float, total: float, squares: float) -> float:
    """The variance, 0 where it is below what rounding leaves of equal values."""
    mean_square = squares / count
    variance = mean_square - (total / count) ** 2
    return variance if variance > _ROUNDING * mean_square else 0.0


@final
class Variance(Statistic):
    """The variance of all values, `mean(x^2) - mean(x)^2`."""

    @staticmethod
    def of(values: Tensor, where: Tensor) -> Variance:
        return Variance(_moments(values, where))

    def finish(self, name: str) -> dict[str, float]:
        count, total, squares = self.sums.tolist()
        return {name: _variance(count, total, squares)} if count > 0 else {}


@final
class Deviation(Statistic):
    """The standard deviation of all values, with the unbiased divisor; 0 for a single value."""

    @staticmethod
    def of(values: Tensor, where: Tensor) -> Deviation:
        return Deviation(_moments(values, where))

    def finish(self, name: str) -> dict[str, float]:
        count, total, squares = self.sums.tolist()
        if count < 1:
            return {}
        return {name: (_variance(count, total, squares) * count / (count - 1)) ** 0.5 if count > 1 else 0.0}


@final
class VarianceReduction(Statistic):
    """Source 000's smoothing metrics: both variances and `1 - var(smoothed) / var(raw)`, which is 0 where `var(raw) = 0`."""

    @staticmethod
    def of(raw: Tensor, smoothed: Tensor, where: Tensor) -> VarianceReduction:
        return VarianceReduction(torch.cat([_moments(raw, where), _moments(smoothed, where)]))

    def finish(self, name: str) -> dict[str, float]:
        sums = self.sums.tolist()
        if sums[0] < 1:
            return {}
        raw, smoothed = _variance(*sums[:3]), _variance(*sums[3:])
        return {
            f"{name}/raw_weights_variance": raw,
            f"{name}/smoothed_weights_variance": smoothed,
            f"{name}/variance_reduction_ratio": 1 - smoothed / raw if raw > 0 else 0.0,
        }


@final
class EffectiveSampleSize(Statistic):
    """`(sum w)^2 / (count sum w^2)`: 1 where all weights are equal, towards `1 / count` where one carries everything."""

    @staticmethod
    def of(values: Tensor, where: Tensor) -> EffectiveSampleSize:
        return EffectiveSampleSize(_moments(values, where))

    def finish(self, name: str) -> dict[str, float]:
        count, total, squares = self.sums.tolist()
        return {name: total**2 / (count * squares)} if squares > 0 else {}


_EDGE = 4.0
# Odd, so that a log-ratio of 0 is the middle of a bin and an on-policy ratio reads 1.
_NUM_BINS = 401
_BIN_NATS = 2 * _EDGE / (_NUM_BINS - 1)


@final
class Percentiles(Statistic):
    """Percentiles of a log-ratio from a histogram of bins 0.02 nats wide around -4, -3.98, ..., 4; values beyond count in the outer bins."""

    PERCENTS = (1, 5, 50, 95, 99)

    @staticmethod
    def of(log_values: Tensor, where: Tensor) -> Percentiles:
        scaled = ((log_values.detach().clamp(-_EDGE, _EDGE) + _EDGE) / _BIN_NATS).round()
        bins = torch.where(where, scaled, torch.zeros((), dtype=scaled.dtype, device=scaled.device)).long().clamp(0, _NUM_BINS - 1)
        counts = torch.zeros(_NUM_BINS, dtype=torch.float64, device=log_values.device)
        return Percentiles(counts.index_add(0, bins.reshape(-1), where.reshape(-1).to(torch.float64)))

    def finish(self, name: str) -> dict[str, float]:
        total = self.sums.sum()
        if total < 1:
            return {}
        cumulative = (self.sums.cumsum(0) / total).contiguous()
        where = torch.searchsorted(cumulative, torch.tensor([p / 100 for p in self.PERCENTS], dtype=torch.float64, device=cumulative.device))
        centres = where.clamp(max=_NUM_BINS - 1) * _BIN_NATS - _EDGE
        return {f"{name}/p{percent}": value for percent, value in zip(self.PERCENTS, centres.exp().tolist(), strict=True)}


def add(parts: Iterable[Mapping[str, Statistic]]) -> dict[str, Statistic]:
    """The sum of several parts, name by name."""
    whole: dict[str, Statistic] = {}
    for part in parts:
        for name, statistic in part.items():
            whole[name] = whole[name] + statistic if name in whole else statistic
    return whole


def reduce_statistics(statistics: Mapping[str, Statistic], reduce: Reduce) -> dict[str, Statistic]:
    """The sum over processes, in one call: every process must hold the same names."""
    names = sorted(statistics)
    if not names:
        return {}
    flat = reduce(torch.cat([statistics[name].sums.reshape(-1) for name in names]))
    pieces = flat.split([statistics[name].sums.numel() for name in names])
    return {name: type(statistics[name])(piece) for name, piece in zip(names, pieces, strict=True)}


def finish(statistics: Mapping[str, Statistic]) -> dict[str, float]:
    """The numbers of all statistics, by metric name: the only place that waits for the device."""
    return {key: value for name, statistic in statistics.items() for key, value in statistic.finish(name).items()}
