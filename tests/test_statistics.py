"""Additive statistics: the sum of parts gives the numbers of the whole."""

from __future__ import annotations

import math
import weakref

import pytest
import torch
from torch import Tensor

from groupwise.statistics import (
    AboveZero,
    Deviation,
    EffectiveSampleSize,
    Events,
    Mean,
    NotFinite,
    Percentiles,
    Total,
    Variance,
    VarianceReduction,
    add,
    finish,
    reduce_statistics,
)

NAN = float("nan")
VALUES = torch.tensor([1.0, 2.0, NAN, 6.0])
WHERE = torch.tensor([True, True, False, True])


def test_numbers_by_hand() -> None:
    # 1, 2, 6: mean 3, variance (4 + 1 + 9) / 3, unbiased 14 / 2, (sum)^2 / (n sum of squares) = 81 / (3 * 41).
    numbers = finish(
        {
            "mean": Mean.of(VALUES, WHERE),
            "share": Mean.share(torch.tensor([True, False, True, True]), WHERE),
            "ratio": Mean.ratio(torch.tensor(3.0), torch.tensor(4.0)),
            "number": Mean.ratio(0.25, 1.0),
            "total": Total.of(torch.tensor(5.0)),
            "variance": Variance.of(VALUES, WHERE),
            "deviation": Deviation.of(VALUES, WHERE),
            "size": EffectiveSampleSize.of_logs(VALUES.log(), WHERE),
        }
    )
    assert numbers == pytest.approx(
        {
            "mean": 3.0,
            "share": 2 / 3,
            "ratio": 0.75,
            "number": 0.25,
            "total": 5.0,
            "variance": 14 / 3,
            "deviation": math.sqrt(7),
            "size": 81 / 123,
        }
    )


def test_variance_reduction_is_the_sources_and_zero_on_policy() -> None:
    raw, smoothed = torch.tensor([1.0, 3.0]).log(), torch.tensor([1.5, 2.5]).log()
    everywhere = torch.tensor([True, True])
    assert finish({"ema": VarianceReduction.of_logs(raw, smoothed, everywhere)}) == pytest.approx(
        {"ema/raw_weights_variance": 1.0, "ema/smoothed_weights_variance": 0.25, "ema/variance_reduction_ratio": 0.75}
    )
    assert (
        finish({"ema": VarianceReduction.of_logs(raw * 0, raw * 0, everywhere)})["ema/variance_reduction_ratio"] == 0.0
    )


def test_percentiles_are_exact_to_a_bin_and_one_on_policy() -> None:
    assert set(finish({"ratio": Percentiles.of(torch.zeros(5), torch.ones(5, dtype=torch.bool))}).values()) == {1.0}
    log_ratio = torch.linspace(-1, 1, 2001)
    numbers = finish({"ratio": Percentiles.of(log_ratio, torch.ones(2001, dtype=torch.bool))})
    for percent in (1, 5, 50, 95, 99):
        exact = -1 + 2 * percent / 100
        # A place of the sorted values, which are 0.001 apart, and half a bin.
        assert math.log(numbers[f"ratio/p{percent}"]) == pytest.approx(exact, abs=0.0011 + 0.0092 * abs(exact))
    outer = finish({"ratio": Percentiles.of(torch.tensor([-50.0, 50.0]), torch.ones(2, dtype=torch.bool))})
    assert (outer["ratio/p1"], outer["ratio/p99"]) == pytest.approx((math.exp(-4), math.exp(4)))


def test_nothing_gives_no_number() -> None:
    nowhere = torch.zeros(4, dtype=torch.bool)
    makers = (Mean.of, Variance.of, Deviation.of, EffectiveSampleSize.of_logs, Percentiles.of)
    assert finish({str(number): make(VALUES, nowhere) for number, make in enumerate(makers)}) == {}
    assert finish({"deviation": Deviation.of(VALUES[:1], WHERE[:1])}) == {"deviation": 0.0}


def test_numbers_too_large_to_square_stop_nothing() -> None:
    huge, everywhere = torch.tensor([1e300, -1e300, 1e300]).double(), torch.ones(3, dtype=torch.bool)
    for statistic in (
        Variance.of(huge, everywhere),
        Deviation.of(huge, everywhere),
        EffectiveSampleSize.of_logs(huge.abs().log(), everywhere),
    ):
        assert list(statistic.finish("x")) in (["x"], [])
    large = torch.full((3,), 600.0, dtype=torch.float64)
    assert EffectiveSampleSize.of_logs(large / 2, everywhere).finish("x") == pytest.approx({"x": 1.0})
    products = torch.tensor([80.0, 80.0, -80.0, -80.0])  # fp32, where the square of e^80 is infinite
    size = EffectiveSampleSize.of_logs(products, torch.ones(4, dtype=torch.bool))
    assert size.finish("x") == pytest.approx({"x": 0.5})


def test_log_probs_above_zero_are_an_error_when_they_are_read() -> None:
    sound = AboveZero.of(torch.tensor([0.0, 5e-4, 2.0, NAN]), torch.tensor([True, True, False, True]))
    assert finish({"x": sound}) == {}
    part = AboveZero.of(torch.tensor([0.5, 0.1]), torch.tensor([True, True]))
    reduced = reduce_statistics(add([{"x": sound}, {"x": part}]), lambda flat: 2 * flat)
    with pytest.raises(ValueError, match=r"above zero at 4 decisions.*density=True"):
        finish(reduced)


def test_seldom_events_are_counted_or_refused_when_they_are_read() -> None:
    nowhere, twice = torch.zeros(2, 2, dtype=torch.bool), torch.tensor([[True, False], [True, False]])
    assert finish({"x": Events.of(nowhere)}) == finish({"x": NotFinite.of(nowhere)}) == {}
    assert finish(add([{"x": Events.of(twice)}, {"x": Events.of(nowhere)}, {"x": Events.of(twice)}])) == {"x": 4.0}
    with pytest.raises(ValueError, match=r"not finite at 2 valid decisions.*not_finite='counted'"):
        finish(add([{"x": NotFinite.of(twice)}, {"x": NotFinite.of(nowhere)}]))


def test_processes_add_up_in_one_call() -> None:
    calls = []

    def twice(flat: Tensor) -> Tensor:
        calls.append(flat.shape)
        return 2 * flat

    reduced = reduce_statistics({"total": Total.of(torch.tensor(3.0)), "mean": Mean.of(VALUES, WHERE)}, twice)
    assert finish(reduced) == pytest.approx({"total": 6.0, "mean": 3.0})
    assert len(calls) == 1
    assert reduce_statistics({}, twice) == {}


def test_nothing_is_summed_before_it_is_read_and_nothing_kept_after() -> None:
    # The graph of what is measured is not kept alive, and neither is the tensor once its sums are known.
    values = torch.ones(4, requires_grad=True) * 2
    kept = weakref.ref(values)
    statistic = Mean.of(values, torch.ones(4, dtype=torch.bool))
    del values
    assert kept() is None
    assert statistic.sums.tolist() == [8.0, 4.0]
    assert isinstance(statistic._sums, Tensor)


def test_a_small_spread_about_one_keeps_its_digits_in_fp32() -> None:
    values = 1 + 1e-4 * torch.tensor([-1.0, 1.0, -1.0, 1.0])
    numbers = finish({"x": Variance.about_one(values, torch.ones(4, dtype=torch.bool))})
    assert numbers["x"] == pytest.approx(1e-8, rel=1e-2)


def test_sums_of_many_numbers_are_those_of_fp64() -> None:
    values = torch.rand(64, 2048, generator=torch.Generator().manual_seed(0))
    where = values > 0.1
    assert finish({"x": Mean.of(values, where)})["x"] == pytest.approx(float(values[where].double().mean()), rel=1e-7)
    assert finish({"x": Mean.share(values > 0.5, where)})["x"] == float((values > 0.5).sum() / where.sum().double())
