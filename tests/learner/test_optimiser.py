"""AdamW as written in its paper, its rate by schedule, decay on matrices only."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from groupwise.learner.local import build_optimiser, configure_optimiser, trained_parameters
from groupwise.learner.protocol import StepNumbers
from groupwise.training.optimiser_config import OptimiserConfig


def test_one_step_by_hand() -> None:
    module = nn.Linear(1, 1, dtype=torch.float64)
    nn.init.constant_(module.weight, 2.0)
    nn.init.constant_(module.bias, 1.0)
    optimiser = build_optimiser(module)
    configure_optimiser(optimiser, StepNumbers(learning_rate=0.1, weight_decay=0.5))
    module(torch.ones(1, 1, dtype=torch.float64)).sum().backward()
    optimiser.step()
    # The first Adam step is lr * sign(gradient); the matrix shrinks by lr * weight_decay before it, the vector does
    # not.
    assert module.weight.item() == pytest.approx(2.0 * (1 - 0.05) - 0.1, abs=1e-8)
    assert module.bias.item() == pytest.approx(1.0 - 0.1, abs=1e-8)


def test_the_rate_warms_up_and_follows_its_schedule() -> None:
    schedule = {"kind": "linear", "start": 1.0, "end": 0.0, "num_steps": 10}
    config = OptimiserConfig.model_validate({"learning_rate": schedule, "warm_up_steps": 2})
    assert [config.rate(step) for step in (0, 1, 2, 5, 10, 20)] == pytest.approx([0.5, 0.9, 0.8, 0.5, 0.0, 0.0])


def test_frozen_and_tied_parameters_are_left_out_and_counted_once() -> None:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False), nn.Linear(2, 2))
    module[1].weight = module[0].weight
    module[2].requires_grad_(False)
    assert trained_parameters(module) == [module[0].weight]


def test_changing_the_numbers_keeps_the_moments() -> None:
    module = nn.Linear(1, 1)
    optimiser = build_optimiser(module)
    module(torch.ones(1, 1)).sum().backward()
    optimiser.step()
    before = optimiser.state[module.weight]["exp_avg"].clone()
    configure_optimiser(optimiser, StepNumbers(learning_rate=1.0, beta1=0.5, beta2=0.6))
    assert optimiser.param_groups[0]["betas"] == (0.5, 0.6)
    assert torch.equal(optimiser.state[module.weight]["exp_avg"], before)
