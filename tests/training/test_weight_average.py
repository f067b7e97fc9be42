"""A running average of the weights, evaluated and saved in their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.training.toy import ToyDomain, job, recipe

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


def test_the_decay_rises() -> None:
    assert [WeightAverage(decay=0.5).decay_after(n) for n in (1, 100)] == [2 / 11, 0.5]
    assert WeightAverage(decay=0.5, warm_up=False).decay_after(1) == 0.5


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


def test_the_average_comes_back_bit_for_bit(tmp_path: Path) -> None:
    import shutil

    averaged_job = job(
        recipe(num_steps=4, weight_average=WeightAverage(decay=0.8)), checkpoint=CheckpointConfig(every=1)
    )
    train(averaged_job, tmp_path / "run")
    expected = (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
    for folder in (tmp_path / "run" / "checkpoints").iterdir():
        if folder.name != "step-2":
            shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "run" / "model")
    (tmp_path / "run" / "summary.json").unlink()
    resume(averaged_job, tmp_path / "run")
    assert (tmp_path / "run" / "model" / "model.safetensors").read_bytes() == expected


def test_a_decay_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="less than 1"):
        WeightAverage(decay=1.0)
