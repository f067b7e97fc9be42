"""A running average of the weights, evaluated and saved in their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.training.toy import ToyDomain, cut_back, job, recipe, saved_model

from groupwise.checkpoint import CheckpointConfig
from groupwise.training.config import WeightAverage
from groupwise.training.run.launch import resume, train


class Watching(ToyDomain):
    """Remembers the weights at every evaluation and every step's sampling."""

    def __init__(self) -> None:
        super().__init__()
        self.evaluated: list[torch.Tensor] = []
        self.sampled: list[torch.Tensor] = []

    def evaluate(self, **settings: Any) -> Any:
        self.evaluated.append(self.module.out.weight.detach().clone())
        return super().evaluate(**settings)

    def sample(self, *arguments: Any, **settings: Any) -> Any:
        self.sampled.append(self.module.out.weight.detach().clone())
        return super().sample(*arguments, **settings)


def test_evaluation_and_the_saved_model_take_the_average_and_training_the_weights(tmp_path: Path) -> None:
    built: list[Watching] = []

    def build(device: Any) -> Watching:
        built.append(Watching())
        return built[-1]

    stage = recipe(num_steps=3, evaluate_every=1, weight_average=WeightAverage(decay=0.75, warm_up=False))
    train(job(stage, domain=build), tmp_path / "run")
    (domain,) = built
    average = domain.sampled[0]
    # Weights after step 1 and 2 are those that steps 2 and 3 sample with.
    for live, evaluated in zip(
        [*domain.sampled[1:], domain.module.out.weight.detach()], domain.evaluated[1:], strict=True
    ):
        average = 0.75 * average + 0.25 * live
        assert torch.allclose(evaluated, average, atol=1e-12)
        assert not torch.equal(evaluated, live)
    saved = load_file(tmp_path / "run" / "model" / "model.safetensors")["out.weight"]
    assert torch.equal(saved, domain.evaluated[-1])


@pytest.mark.slow
def test_the_average_comes_back_bit_for_bit(tmp_path: Path) -> None:
    every = CheckpointConfig(every=1, keep_last=9)
    averaged = job(recipe(num_steps=4, weight_average=WeightAverage(decay=0.8)), checkpoint=every)
    train(averaged, tmp_path / "run")
    expected = saved_model(tmp_path / "run")
    resume(averaged, cut_back(tmp_path / "run", 2))
    assert saved_model(tmp_path / "run") == expected
