"""Additive statistics: sums that add over micro-batches and processes, and become numbers only when they are logged.

A statistic keeps the tensors that it measures, without their graphs, and sums them when it is first read: when
statistics are added or logged. A loop that logs nothing computes no sums, and only `finish` waits for a device.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from groupwise.transfer import moved

Reduce = Callable[[Tensor], Tensor]


def sum_over_one_process(tensor: Tensor) -> Tensor:
    """Returns the sum over processes where there is one process: the tensor itself."""
    return tensor


def as_float(where: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns 1 where true, 0 elsewhere. The tensor is read as bytes: converting and reducing `bool` is several times
    slower.
    """
    return where.view(torch.uint8).to(dtype)


def logical_and(left: Tensor, right: Tensor) -> Tensor:
    """Returns `left & right` of two bool tensors that broadcast."""
    return (left.view(torch.uint8) & right.view(torch.uint8)).view(torch.bool)


def row_count(where: Tensor) -> Tensor:
    """Counts the true places of each row, `[..., 1]` integers."""
    return where.view(torch.uint8).sum(-1, keepdim=True, dtype=torch.int32)


def count(where: Tensor) -> Tensor:
    """Counts the true places, fp64 scalar."""
    return row_count(where).sum(dtype=torch.float64)


def total(values: Tensor) -> Tensor:
    """Returns the sum, fp64 scalar: rows are summed in their own precision, the sums of rows in fp64."""
    return values.sum(-1).sum(dtype=torch.float64)


@dataclass(eq=False)
class Statistic(ABC):
    """One additive statistic: a vector of fp64 sums and the rule that turns the whole sum into numbers.

    Args:
        _sums: the vector of sums, or a function that computes it.
    """

    _sums: Tensor | Callable[[], Tensor]

    @property
    def sums(self) -> Tensor:
        """The vector of sums. The first reading computes it and frees the tensors from which it is computed."""
        if not isinstance(self._sums, Tensor):
            self._sums = self._sums()
        return self._sums

    def __add__(self, addend: Statistic) -> Statistic:
        return type(self)(self.sums + addend.sums.to(self.sums.device))

    @abstractmethod
    def finish(self, name: str) -> dict[str, float]:
        """Returns the numbers of the whole sum, by metric name. A statistic over nothing gives no number."""


class Mean(Statistic):
    """`sum(x) / count`."""

    @staticmethod
    def of(values: Tensor | Callable[[], Tensor], where: Tensor) -> Mean:
        """Measures the mean of `values` over the places where `where` is true; NaN elsewhere has no effect. A function
        is called when the statistic is read.
        """
        source = values.detach() if isinstance(values, Tensor) else values
        return Mean(
            lambda: torch.stack(
                [total(torch.where(where, source if isinstance(source, Tensor) else source(), 0)), count(where)]
            )
        )

    @staticmethod
    def share(hits: Tensor | Callable[[], Tensor], where: Tensor, among: Tensor | None = None) -> Mean:
        """Measures the share of true places of `hits` among those of `where` (and `among`, which broadcasts). A
        function is called when the statistic is read.
        """
        places = where if among is None else logical_and(where, among)
        return Mean(
            lambda: torch.stack(
                [count(logical_and(hits if isinstance(hits, Tensor) else hits(), places)), count(places)]
            )
        )

    @staticmethod
    def ratio(total: Tensor | float, count: Tensor | float) -> Mean:
        """Measures `total / count` of two scalars that both add; of a number that is the same in every part the count
        is 1.
        """
        constants = [scalar.detach() if isinstance(scalar, Tensor) else scalar for scalar in (total, count)]
        return Mean(
            lambda: torch.stack([torch.as_tensor(scalar, dtype=torch.float64).reshape(()) for scalar in constants])
        )

    def finish(self, name: str) -> dict[str, float]:
        total, count = self.sums.tolist()
        return {name: total / count} if count > 0 else {}


class Total(Statistic):
    """`sum(x)`: counts of events."""

    @staticmethod
    def of(value: Tensor) -> Total:
        """Records a number of events, a scalar."""
        constant = value.detach()
        return Total(lambda: constant.to(torch.float64).reshape(1))

    def finish(self, name: str) -> dict[str, float]:
        return {name: float(self.sums)}


ABOVE_ZERO = 1e-3
"""Nats above zero that rounding may give a log-prob, which is a difference of large logits."""


class Count(Statistic):
    """The number of places where something holds."""

    @classmethod
    def of(cls, where: Tensor) -> Self:
        """Counts the true places."""
        return cls(lambda: count(where).reshape(1))


class Events(Count):
    """The number of places of a rare event; no metric where there is none."""

    def finish(self, name: str) -> dict[str, float]:
        return {name: number} if (number := float(self.sums)) > 0 else {}


class AboveZero(Statistic):
    """The number of log-probs of discrete decisions above zero. Reading it raises an error if it is not 0, and gives no
    metric if it is.

    The check does not wait for a device: it is a sum like any other, and the error is raised when a step is logged.
    """

    @staticmethod
    def of(log_prob: Tensor, where: Tensor) -> AboveZero:
        """Counts the places where `where` is true and the log-prob is above zero."""
        constant = log_prob.detach()
        return AboveZero(lambda: count(logical_and(constant > ABOVE_ZERO, where)).reshape(1))

    def finish(self, name: str) -> dict[str, float]:
        if (number := int(self.sums)) > 0:
            raise ValueError(
                f"Scored.log_prob lies above zero at {number} decisions: a log-probability is at most 0. "
                "Pass log-probs, not probabilities; for densities write Rollouts(..., density=True)"
            )
        return {}


class NotFinite(Count):
    """The number of log-probs that are NaN or infinite, where the plan does not count them as data. Reading it raises
    an error if it is not 0.
    """

    def finish(self, name: str) -> dict[str, float]:
        if (number := int(self.sums)) > 0:
            raise ValueError(
                f"Scored.log_prob is not finite at {number} valid decisions; a decision that carries no log-prob must"
                " be masked out in Rollouts.mask. To leave such decisions out and count them write objective.plan(...,"
                " not_finite='counted')"
            )
        return {}


_ROUNDING = 1e-13


def _moments(values: Tensor, where: Tensor) -> Tensor:
    """Returns the count, the sum and the sum of squares of the values where `where` is true."""
    masked = torch.where(where, values, 0)
    squares = torch.linalg.vector_norm(masked, dim=-1).to(torch.float64).square().sum()
    return torch.stack([count(where), total(masked), squares])


def _variance(count: float, total: float, squares: float) -> float:
    """Returns the variance; 0 where it is no larger than the rounding errors of equal values."""
    mean_square = squares / count
    mean = total / count
    variance = mean_square - mean * mean  # a power of Python's floats raises where it overflows, a product does not
    return variance if variance > _ROUNDING * mean_square else 0.0


class Moments(Statistic):
    """The count, the sum and the sum of squares of values, fp64."""

    @classmethod
    def of(cls, values: Tensor, where: Tensor) -> Self:
        """Measures the values where `where` is true."""
        constant = values.detach()
        return cls(lambda: _moments(constant, where))


class Variance(Moments):
    """The variance of all values, `mean(x^2) - mean(x)^2`. Subtract a constant first where the spread is small beside
    the values.
    """

    @staticmethod
    def about_one(values: Tensor, where: Tensor) -> Variance:
        """Measures values near one: their variance is that of the values less one."""
        constant = values.detach()
        return Variance(lambda: _moments(constant - 1, where))

    def finish(self, name: str) -> dict[str, float]:
        count, total, squares = self.sums.tolist()
        return {name: _variance(count, total, squares)} if count > 0 else {}


class Correlation(Statistic):
    """Pearson's correlation of pairs that are already centred, `sum(x y) / sqrt(sum(x^2) sum(y^2))`."""

    @staticmethod
    def of(left: Tensor, right: Tensor) -> Correlation:
        """Measures two tensors of one shape, each less its own mean (that of its group)."""
        pair = (left.detach().to(torch.float64), right.detach().to(torch.float64))
        return Correlation(
            lambda: torch.stack([(pair[0] * pair[1]).sum(), pair[0].square().sum(), pair[1].square().sum()])
        )

    def finish(self, name: str) -> dict[str, float]:
        product, *squares = self.sums.tolist()
        size = math.sqrt(squares[0]) * math.sqrt(squares[1])
        return {name: max(-1.0, min(1.0, product / size))} if size > 0 and math.isfinite(size) else {}


class Quotient(Statistic):
    """One mean divided by another, `(sum(x) / num_x) / (sum(y) / num_y)`; nothing where the second is 0."""

    @staticmethod
    def of(dividend: float, num_dividend: float, divisor: float, num_divisor: float) -> Quotient:
        """Keeps two sums, each with its count."""
        sums = torch.tensor([dividend, num_dividend, divisor, num_divisor], dtype=torch.float64)
        return Quotient(lambda: sums)

    def finish(self, name: str) -> dict[str, float]:
        dividend, num_dividend, divisor, num_divisor = self.sums.tolist()
        if not (num_dividend > 0 and divisor > 0 and math.isfinite(divisor)):
            return {}
        return {name: dividend / num_dividend / (divisor / num_divisor)}


class Deviation(Moments):
    """The standard deviation of all values, with the unbiased divisor; 0 for a single value."""

    def finish(self, name: str) -> dict[str, float]:
        count, total, squares = self.sums.tolist()
        if count < 1:
            return {}
        return {name: (_variance(count, total, squares) * count / (count - 1)) ** 0.5 if count > 1 else 0.0}


class VarianceReduction(Statistic):
    """Source 000's smoothing metrics: both variances and `1 - var(smoothed) / var(raw)`, which is 0 where `var(raw) =
    0`.
    """

    @staticmethod
    def of_logs(log_raw: Tensor, log_smoothed: Tensor, where: Tensor) -> VarianceReduction:
        """Measures ratios before and after smoothing; both are passed as logarithms."""
        logs = (log_raw.detach(), log_smoothed.detach())
        return VarianceReduction(lambda: torch.cat([_moments(log.exp() - 1, where) for log in logs]))

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


class EffectiveSampleSize(Statistic):
    """`(sum w)^2 / (count sum w^2)`: 1 where all weights are equal, near `1 / count` where one weight dominates."""

    @staticmethod
    def of_logs(log_weight: Tensor, where: Tensor) -> EffectiveSampleSize:
        """Measures weights, which are passed as logarithms; fp32 would not hold the square of a product of ratios."""
        constant = log_weight.detach()
        return EffectiveSampleSize(lambda: _moments(constant.double().exp(), where))

    def finish(self, name: str) -> dict[str, float]:
        count, total, squares = self.sums.tolist()
        return {name: total / squares * (total / count)} if squares > 0 else {}


_EDGE = 4.0
_FINEST = 1e-7
"""The scale of the bins in nats: smaller log-ratios have bins of equal width, larger ones of equal relative width."""
# Odd, so that a log-ratio of 0 is the middle of a bin and an on-policy ratio reads 1.
_NUM_BINS = 2001
_BIN = 2 * math.asinh(_EDGE / _FINEST) / (_NUM_BINS - 1)


def _histogram(log_values: Tensor, where: Tensor) -> Tensor:
    """Counts log-ratios in bins that are equally wide in `asinh(log-ratio / 1e-7)`."""
    size = log_values.abs().clamp_(max=_EDGE).div_(_FINEST)
    # asinh is written out: the library's function is ten times as slow, and more exact than a bin needs.
    even = size.square().add_(1).sqrt_().add_(size).log_().copysign_(log_values)
    # Half a bin is added, so that the integer part is the nearest bin; masked values and NaN go to one more bin, which
    # is dropped.
    scaled = even.div_(_BIN).add_((_NUM_BINS - 1) / 2 + 0.5).clamp_(0.5, _NUM_BINS - 0.5)
    clamped = torch.where(where, scaled, torch.full((), _NUM_BINS + 0.5, dtype=scaled.dtype, device=scaled.device))
    bins = clamped.nan_to_num_(nan=_NUM_BINS + 0.5).to(torch.int64).reshape(-1)
    counts = torch.zeros(_NUM_BINS + 1, dtype=torch.float64, device=log_values.device)
    return counts.index_add_(0, bins, counts.new_ones(()).expand(len(bins)))[:_NUM_BINS]


class Percentiles(Statistic):
    """Percentiles of a log-ratio, from a histogram whose bins have equal width in `asinh(log-ratio / 1e-7)`.

    A percentile is right to 1 % of the log-ratio, or to 1e-9 nats, so that it resolves methods that clip at 1e-6 as
    well as those that clip at 0.2. Values beyond 4 nats count in the outermost bins.
    """

    PERCENTS = (1, 5, 50, 95, 99)

    @staticmethod
    def of(log_values: Tensor, where: Tensor) -> Percentiles:
        """Measures the log-ratios where `where` is true."""
        constant = log_values.detach()
        return Percentiles(lambda: _histogram(constant, where))

    def finish(self, name: str) -> dict[str, float]:
        total = self.sums.sum()
        if total < 1:
            return {}
        cumulative = (self.sums.cumsum(0) / total).contiguous()
        where = torch.searchsorted(
            cumulative, torch.tensor([p / 100 for p in self.PERCENTS], dtype=torch.float64, device=cumulative.device)
        )
        centres = _FINEST * ((where.clamp(max=_NUM_BINS - 1) - (_NUM_BINS - 1) // 2).double() * _BIN).sinh()
        return {
            f"{name}/p{percent}": value for percent, value in zip(self.PERCENTS, centres.exp().tolist(), strict=True)
        }


def add(batches: Iterable[Mapping[str, Statistic]]) -> dict[str, Statistic]:
    """Adds the statistics of several micro-batches, name by name."""
    sums: dict[str, Statistic] = {}
    for statistics in batches:
        for name, statistic in statistics.items():
            sums[name] = sums[name] + statistic if name in sums else statistic
    return sums


def reduce_statistics(statistics: Mapping[str, Statistic], reduce: Reduce) -> dict[str, Statistic]:
    """Sums statistics over processes, in one call; every process must hold the same names."""
    names = sorted(statistics)
    if not names:
        return {}
    flat = reduce(torch.cat([statistics[name].sums.reshape(-1) for name in names]))
    reduced_sums = flat.split([statistics[name].sums.numel() for name in names])
    return {name: type(statistics[name])(sums) for name, sums in zip(names, reduced_sums, strict=True)}


def on_cpu(statistics: Mapping[str, Statistic]) -> dict[str, Statistic]:
    """Returns the statistics with their sums on the CPU, which waits for the device once."""
    sums = moved({name: statistic.sums for name, statistic in statistics.items()})
    return {name: type(statistic)(sums[name]) for name, statistic in statistics.items()}


def finish(statistics: Mapping[str, Statistic]) -> dict[str, float]:
    """Returns the numbers of all statistics, by metric name. It waits for the device once."""
    return {name: value for key, each in on_cpu(statistics).items() for name, value in each.finish(key).items()}
