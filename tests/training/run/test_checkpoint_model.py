"""The model of a checkpoint: the averaged weights where an average was kept, and a word about another model's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.training.toy import ToyDomain

from groupwise.checkpoint import CheckpointConfig, CheckpointStore
from groupwise.config import ConfigError
from groupwise.objective import ObjectiveState
from groupwise.training.config import WeightAverage
from groupwise.training.distributed import World
from groupwise.training.run.evaluation import write_model_of
from groupwise.training.step.state import Progress, TrainState


def test_the_averaged_weights_are_written_and_another_models_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    domain = ToyDomain()
    state = TrainState(Progress(), ObjectiveState(), domain.learner)
    state.begin_average(WeightAverage())
    average = {name: value.detach().clone() for name, value in domain.module.state_dict().items()}
    with torch.no_grad():
        for parameter in domain.module.parameters():
            parameter.add_(1.0)
    store = CheckpointStore(tmp_path / "checkpoints", CheckpointConfig())
    store.save(1, state.record(World(), 0))
    checkpoint = store.latest()
    assert checkpoint is not None
    (tmp_path / "model").mkdir()
    write_model_of(checkpoint, ToyDomain(), tmp_path / "model")
    (file,) = (tmp_path / "model").glob("*.safetensors")
    written = load_file(file)
    assert all(value.equal(average[name]) for name, value in written.items())
    with pytest.raises(ConfigError, match=r"step-1 does not fit the model of this run: .*by_prompt.weight is"):
        write_model_of(checkpoint, ToyDomain(num_prompts=9), tmp_path / "model")
