"""What was changed for the whole run and holds in no more than a part of it."""

from __future__ import annotations

import pytest

from groupwise.experiment import load_experiment


def said(caplog: pytest.LogCaptureFixture, name: str, *overrides: str) -> list[str]:
    caplog.clear()
    load_experiment(name, list(overrides))
    return [record.getMessage() for record in caplog.records if "sets its own" in record.getMessage()]


def test_a_key_that_a_sampling_stage_sets_is_said(caplog: pytest.LogCaptureFixture) -> None:
    of_learning_rate, of_trust = said(
        caplog, "source_001_progressive", "optimiser.learning_rate=1e-6", "trust.low=0.3", "divergence.kind=exact"
    )
    assert (
        of_learning_rate == "optimiser.learning_rate: stage full sets its own, which holds there; write"
        " stages.full.set.optimiser.learning_rate=... as well"
    )
    assert of_trust.startswith("trust.low: stage full sets its own")
    # A part of what a stage replaces as a whole.
    schedule = 'auxiliary.supervised={kind="linear", start=0.9, end=0.1, num_steps=10}'
    assert said(caplog, "source_001_progressive", schedule) != []


def test_an_override_that_holds_in_every_sampling_stage_gives_no_remark(caplog: pytest.LogCaptureFixture) -> None:
    assert (
        said(
            caplog,
            "source_001_improved",
            "optimiser.learning_rate=2e-6",
            "auxiliary.supervised=0.8",
            "trust.low=0.1",
            "advantage.clip=2.0",
        )
        == []
    )
    assert said(caplog, "language", "optimiser.learning_rate=1e-4", "train.group_size=4") == []
    assert said(caplog, "source_001_progressive", "stages.full.set.trust.low=0.05", "train.prompts_per_step=1") == []


def test_an_override_repeated_for_the_stage_gives_no_remark(caplog: pytest.LogCaptureFixture) -> None:
    advice = ["train.max_grad_norm=0.1", "stages.full.set.train.max_grad_norm=0.1"]
    assert said(caplog, "source_001_progressive", *advice) == []
    assert said(caplog, "source_001_progressive", "trust.low=0.1", *advice) != []
