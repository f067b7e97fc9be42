"""The relative size of an update."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from groupwise.learner.local import LocalLearner
from groupwise.learner.protocol import StepNumbers


def test_adam_moves_every_weight_by_its_rate() -> None:
    module = nn.Linear(64, 64, bias=False, dtype=torch.float64)
    nn.init.constant_(module.weight, 0.5)
    learner = LocalLearner(module)
    assert learner.step_metrics == {}
    module(torch.ones(1, 64, dtype=torch.float64)).sum().backward()
    learner.step(StepNumbers(learning_rate=1e-3, eps=1e-12))
    # The first step of Adam is the rate, whatever the gradient: 0.001 of 0.5.
    assert learner.step_metrics["weights/change"] == pytest.approx(2e-3, rel=1e-6)


def test_a_step_that_rounds_to_nothing_changes_nothing() -> None:
    module = nn.Linear(8, 8, bias=False, dtype=torch.bfloat16)
    nn.init.constant_(module.weight, 1.0)
    learner = LocalLearner(module)
    module(torch.ones(1, 8, dtype=torch.bfloat16)).sum().backward()
    learner.step(StepNumbers(learning_rate=1e-5))
    assert learner.step_metrics["weights/change"] == 0.0


def test_weights_with_a_gradient_that_a_step_leaves_are_counted() -> None:
    module = nn.Linear(8, 8, bias=False, dtype=torch.bfloat16)
    nn.init.constant_(module.weight, 1.0)
    module.weight.data[:4] = 1e-3
    learner = LocalLearner(module)
    # Two of eight columns have no gradient; of the others, one row in two is as small as the step.
    module(torch.tensor([[1.0] * 6 + [0.0] * 2], dtype=torch.bfloat16)).sum().backward()
    learner.step(StepNumbers(learning_rate=1e-3))
    assert learner.step_metrics["weights/stuck"] == 0.5


def test_what_another_writes_between_two_steps_is_measured() -> None:
    module = nn.Linear(8, 8, bias=False, dtype=torch.float64)
    nn.init.constant_(module.weight, 1.0)
    learner = LocalLearner(module)

    def step() -> float | None:
        module(torch.ones(1, 8, dtype=torch.float64)).sum().backward()
        learner.step(StepNumbers(learning_rate=1e-3, eps=1e-12))
        return learner.step_metrics.get("weights/rewritten")

    assert step() is None
    assert step() is None
    module.weight.data += 0.5
    # The weights were 1 less two steps of .001, and are half again as large before the third.
    assert step() == pytest.approx(0.5 / 0.998, rel=1e-6)
    assert step() is None
    learner.restore({**learner.record(), "weights": {"weight": torch.zeros(8, 8, dtype=torch.float64)}})
    assert step() is None, "a checkpoint is loaded on purpose"
