"""Seconds from rates, by hand; documented GPUs; communication."""

from __future__ import annotations

import pytest

from groupwise.estimate.machine import GPUS, Machine, Rates, Work, documented_machine, interpolate_rate
from groupwise.estimate.shape import Shape

SHAPE = Shape(hidden=100, intermediate=300, vocabulary=50, layers=4, heads=4, kv_heads=4, head_width=25)


def test_seconds_by_hand():
    rates = Rates(
        call=0.1, layer=0.01, token=0.001, parameter=1e-6, logit=1e-4, layer_rates={100: 1e3}, head_rates={100: 1e2}
    )
    done = Work(calls=10, tokens=100, layer_flops=2e3, head_flops=1e2, logits=5000, bytes_read=500)
    assert rates.seconds(done, SHAPE, optimiser_steps=2, parameters=1000) == pytest.approx(
        10 * 0.14 + 0.1 + 0.002 + 0.5 + 2 + 1
    )
    slow = Rates(0.0, 0.0, 0.0, 0.0, 0.0, {100: 1e3}, {100: 1e2}, bandwidth=100.0)
    assert slow.seconds(done, SHAPE) == pytest.approx(5.0)


def test_rates_outside_the_measured_widths_are_the_nearest():
    rates = {64: 1e9, 256: 4e9, 1024: 4e9}
    assert [interpolate_rate(rates, width) for width in (32, 64, 512, 9999)] == pytest.approx([1e9, 1e9, 4e9, 4e9])


def test_a_faster_gpu_is_faster_and_its_bandwidth_counts_when_few_tokens_are_sampled():
    done = Work(calls=100, tokens=100, layer_flops=1e12, head_flops=0.0, bytes_read=100 * 14e9)
    seconds = {name: documented_machine(name, half=True).part_rates["sampling"].seconds(done, SHAPE) for name in GPUS}
    assert seconds["H200"] < seconds["H100"] < seconds["A100"]
    assert seconds["H100"] == pytest.approx(100 * 4 * 4e-4 + 1.4e12 / (0.6 * 3350e9))


def test_a_ring_moves_twice_the_gradient_but_for_one_part():
    machine = Machine("pair", {}, is_measured=False, link=1e9)
    assert machine.communication(1e9, 4, times=2) == pytest.approx(2 * 2 * 3 / 4 / 0.7)
    assert machine.communication(1e9, 1, times=2) == 0.0
    wide = documented_machine("H100", half=True)
    assert wide.communication(1e9, 16, 1) == pytest.approx(2 * 15 / 16 * 1e9 / (0.7 * 50e9))
