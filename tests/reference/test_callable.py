"""A reference of one's own: when it is mixed is what its class says, and what cannot be a share is named."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from groupwise.config import ConfigError, restrict_code, validate
from groupwise.learner.local import LocalLearner
from groupwise.reference import CallableReference, ReferencePolicy, ReferenceRule

HERE = "tests.reference.test_callable"


class OnGains(ReferenceRule):
    """Mixed whenever the score rose by `gain`."""

    gain: float = 0.1

    def follow(self, step: int, score: float | None, reference_score: float | None) -> float | None:
        rose = score is not None and reference_score is not None and score >= reference_score + self.gain
        return 0.5 if rose else None


class TooMuch(ReferenceRule):
    """Mixes more than there is."""

    def follow(self, step: int, score: float | None, reference_score: float | None) -> float:
        return 1.5


def policy(name: str) -> tuple[nn.Linear, ReferencePolicy]:
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, 1.0)
    rule = validate(CallableReference, {"kind": "callable", "path": f"{HERE}:{name}"})
    reference = ReferencePolicy(rule, LocalLearner(module))
    nn.init.constant_(module.weight, 3.0)
    return module, reference


def weight(module: nn.Linear, reference: ReferencePolicy) -> float:
    with reference.active(), torch.no_grad():
        return module.weight.item()


def test_a_reference_is_mixed_when_its_class_asks_for_it() -> None:
    module, reference = policy("OnGains")
    said = [reference.observe(step, score) for step, score in enumerate((0.5, 0.55, 0.6, 0.65), 1)]
    assert said == ["", "", "mixed", ""]
    assert weight(module, reference) == 2.0
    assert reference.state()["score"] == 0.6


def test_a_share_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"TooMuch: follow\(\) returned 1\.5 at step 1; return the policy's share"):
        policy("TooMuch")[1].observe(1, None)


def test_what_is_no_reference_is_refused_and_nothing_is_imported_while_reading() -> None:
    with pytest.raises(ConfigError, match=r"LocalLearner does not extend groupwise.reference.ReferenceRule"):
        validate(CallableReference, {"kind": "callable", "path": "groupwise.learner.local:LocalLearner"})
    with restrict_code():
        assert validate(CallableReference, {"kind": "callable", "path": "not_a_module:Rule"}).present
