"""A calibration finds the rates that made its measurements, and real runs are what it measures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from groupwise.estimate.calibration import PROBES, Probe, Taken, calibrated, fit, measure
from groupwise.estimate.machine import Rates
from groupwise.estimate.work import Step, work
from groupwise.experiment import load_experiment, run


def train(table: Mapping[str, Any], out: Path) -> None:
    path = out.with_suffix(".json")
    path.write_text(json.dumps(table))
    run(load_experiment(path, run_code=True), out)


def test_a_fit_predicts_what_was_not_measured():
    truth = Rates(2e-3, 5e-4, 2e-6, 3e-9, 1e-9, {64: 8e9, 192: 2e10, 448: 3e10}, {64: 1e10, 192: 2e10, 448: 4e10})
    taken = []
    for probe in PROBES:
        shape, step = probe.shape(probe.words + 4), Step(probe.prompts, probe.group_size, 17, 16, 16, reference=True)
        parts = work(shape, step)
        seconds = {
            part: truth.seconds(done, shape, int(part == "update"), shape.parameters) for part, done in parts.items()
        }
        taken.append(Taken(shape, step, seconds))
    measured = fit(taken, "made up")
    assert max(most for _, most in measured.residuals.values()) < 0.01
    other, step = Probe(128, 6, 500, 8, 16).shape(504), Step(8, 16, 40, 25, 30, reference=True)
    for part, done in work(other, step).items():
        expected = truth.seconds(done, other, int(part == "update"), other.parameters)
        assert measured.machine().parts[part].seconds(
            done, other, int(part == "update"), other.parameters
        ) == pytest.approx(expected, rel=0.1)


def test_a_probe_is_a_real_run_in_which_every_member_learns():
    taken = measure(Probe(64, 1, 32, 2, 4), train, 1)
    assert set(taken.seconds) == {"sampling", "scoring", "update"}
    assert all(0 < seconds < 5 for seconds in taken.seconds.values())
    assert 1 < taken.step.completion_tokens <= 16
    assert 32 < taken.shape.vocabulary < 48


def test_a_machine_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    monkeypatch.setattr("groupwise.estimate.calibration.PROBES", PROBES[:1])
    said: list[str] = []
    first = calibrated(train, say=said.append)
    assert calibrated(train, say=said.append) == first
    assert len(said) == 1
    next(tmp_path.glob("calibration/*.json")).write_text("{")
    calibrated(train, say=said.append)
    assert len(said) == 2
