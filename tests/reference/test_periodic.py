"""Source 002's names are converted and the conversion is said."""

from __future__ import annotations

import logging

import pytest
from pydantic import TypeAdapter

from groupwise.reference import PeriodicReference, ReferenceConfig


def test_source_names_are_converted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "groupwise"):
        config = TypeAdapter(ReferenceConfig).validate_json(
            '{"kind": "periodic", "reference_model_mixup_alpha": 0.3, "reference_update_freq": 5}'
        )
    assert config == PeriodicReference(sync_steps=5, alpha=0.7)
    assert "reference.alpha = 0.7" in caplog.text


def test_only_the_first_process_says_it(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert PeriodicReference.model_validate({"reference_model_mixup_alpha": 0.25}).alpha == 0.75
    assert caplog.text == ""


def test_both_orientations_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="two orientations"):
        PeriodicReference.model_validate({"alpha": 0.5, "reference_model_mixup_alpha": 0.5})
