"""A calibration finds the rates that made its measurements, and real runs are what it measures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.estimate.calibration import PROBES, Probe, ProbeTiming, calibrate_machine, fit, measure
from groupwise.estimate.estimate import estimate
from groupwise.estimate.machine import Rates, Step, work
from groupwise.experiment import load_experiment, run


def train(table: Mapping[str, Any], out: Path) -> None:
    path = out.with_suffix(".json")
    path.write_text(json.dumps(table))
    run(load_experiment(path, run_code=True), out)


def test_a_fit_predicts_seconds_of_a_model_that_was_not_measured():
    truth = Rates(2e-3, 5e-4, 2e-6, 3e-9, 1e-9, {64: 8e9, 192: 2e10, 448: 3e10}, {64: 1e10, 192: 2e10, 448: 4e10})
    timings = []
    for probe in PROBES:
        shape, step = probe.shape(probe.words + 4), Step(probe.prompts, probe.group_size, 17, 16, 16, reference=True)
        part_work = work(shape, step)
        seconds = {
            part: truth.seconds(part_of_work, shape, int(part == "update"), shape.parameters)
            for part, part_of_work in part_work.items()
        }
        timings.append(ProbeTiming(shape, step, seconds))
    rates = fit(timings, "made up")
    assert max(most for _, most in rates.residuals.values()) < 0.01
    assert not rates.unmeasured
    large_shape, step = Probe(128, 6, 500, 8, 16).shape(504), Step(8, 16, 40, 25, 30, reference=True)
    for part, part_of_work in work(large_shape, step).items():
        expected = truth.seconds(part_of_work, large_shape, int(part == "update"), large_shape.parameters)
        assert rates.machine().part_rates[part].seconds(
            part_of_work, large_shape, int(part == "update"), large_shape.parameters
        ) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("probes", [PROBES, PROBES[:5], PROBES[:1]])
def test_arithmetic_that_takes_no_measurable_time_gets_the_rate_that_was_reached(
    probes: tuple[Probe, ...], noise: float
):
    """On a busy machine the seconds of the probes may be those of their calls alone, give or take some of them."""
    timings, reached, generator = [], 0.0, np.random.default_rng(0)
    for probe in probes:
        shape, step = probe.shape(probe.words + 4), Step(probe.prompts, probe.group_size, 17, 16, 16, reference=True)
        part_work = work(shape, step)
        seconds = {
            part: 0.01 * part_of_work.calls * generator.uniform(1 - noise, 1 + noise)
            for part, part_of_work in part_work.items()
        }
        timings.append(ProbeTiming(shape, step, seconds))
        update = part_work["update"]
        reached = max(reached, (update.layer_flops + update.head_flops) / seconds["update"])
    machine = fit(timings, "busy").machine()
    assert list(machine.unmeasured) == ["sampling", "scoring", "update"]
    assert "no measurable time" in estimate(timings[0].shape, timings[0].step, machine).extrapolated[0]
    rates = machine.part_rates
    assert rates["update"].layer_rates == pytest.approx(dict.fromkeys(rates["update"].layer_rates, reached))
    assert rates["update"].head_rates == pytest.approx(dict.fromkeys(rates["update"].head_rates, reached))
    for timing in timings:
        for part, part_of_work in work(timing.shape, timing.step).items():
            predicted = rates[part].seconds(part_of_work, timing.shape, int(part == "update"), timing.shape.parameters)
            assert timing.seconds[part] * 0.95 <= predicted <= timing.seconds[part] * 2.1


def test_layers_that_take_no_measurable_time_beside_a_slow_head_do_not_get_its_rate():
    """Large models, which are nearly all layers, were foretold by the rate of the head, and nobody said so."""
    timings, reached = [], 0.0
    for probe in PROBES:
        shape, step = probe.shape(probe.words + 4), Step(probe.prompts, probe.group_size, 17, 16, 16, reference=True)
        part_work = work(shape, step)
        seconds = {part: 0.01 * some.calls + some.head_flops / 1e7 for part, some in part_work.items()}
        timings.append(ProbeTiming(shape, step, seconds))
        reached = max(reached, (part_work["update"].layer_flops + part_work["update"].head_flops) / seconds["update"])
    machine = fit(timings, "slow head").machine()
    assert "update" in machine.unmeasured
    rates = machine.part_rates["update"]
    assert max(rates.head_rates.values()) < min(rates.layer_rates.values()) == pytest.approx(reached)


def test_a_probe_is_a_real_run_in_which_every_member_learns():
    timing = measure(Probe(64, 1, 32, 2, 4), train, 1)
    assert set(timing.seconds) == {"sampling", "scoring", "update"}
    assert all(seconds > 0 for seconds in timing.seconds.values())
    assert 1 < timing.step.completion_tokens <= 16
    assert 32 < timing.shape.vocabulary < 48


def test_a_machine_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    monkeypatch.setattr("groupwise.estimate.calibration.PROBES", PROBES[:1])
    messages: list[str] = []
    first = calibrate_machine(train, say=messages.append)
    assert calibrate_machine(train, say=messages.append) == first
    assert len(messages) == 1
    next(tmp_path.glob("calibration/*.json")).write_text("{")
    calibrate_machine(train, say=messages.append)
    assert len(messages) == 2
