"""The door for a pipeline of one's own: by import path in a configuration, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.images.diffusion.models.tiny import saved
from torch import Tensor

from groupwise.config import ConfigError, validate
from groupwise.streams import Streams
from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.domain import DiffusionDomain
from groupwise_images.diffusion.model import Pretrained
from groupwise_images.diffusion.models.families import StableDiffusion3
from groupwise_images.diffusion.pipeline_adapter import PipelineAdapter

HERE = "tests.images.diffusion.models.test_adapters"


class Mine(StableDiffusion3):  # type: ignore[misc]
    """Stands in the place of the shipped one."""


class Lacking(StableDiffusion3):  # type: ignore[misc]
    encode = PipelineAdapter.encode


class NeedsArguments(StableDiffusion3):  # type: ignore[misc]
    def __init__(self, size: int) -> None:
        self.size = size


class TwoLengths(StableDiffusion3):  # type: ignore[misc]
    def encode(self, pipe: Any, prompts: Any, negatives: Any, size: Any) -> Any:
        condition, negative = super().encode(pipe, prompts, negatives, size)
        return condition, negative | {"encoder_hidden_states": negative["encoder_hidden_states"][:, :7]}


class Flat(StableDiffusion3):  # type: ignore[misc]
    def forward(self, *arguments: Any) -> Tensor:
        return super().forward(*arguments).flatten(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("StableDiffusion3Pipeline", tmp_path_factory.mktemp("sd3"))


def domain(folder: Path, tmp_path: Path, pipeline: str | None) -> DiffusionDomain:
    (tmp_path / "prompts.txt").write_text("a red cat\ntwo dogs\n")
    table = {
        "model": {"kind": "pretrained", "path": str(folder), "size": [16, 8], "pipeline": pipeline},
        "data": {"source": {"kind": "prompts", "path": str(tmp_path / "prompts.txt")}},
        "rewards": {"small": {"kind": "jpeg_size"}},
        "num_steps": 2,
    }
    return DiffusionDomain(validate(DiffusionConfig, table), streams=Streams(0))


def log_probs(opened: DiffusionDomain) -> Tensor:
    requires = frozenset({"log_prob"})
    return opened.sample(
        opened.prompts([0, 1]), 2, streams=Streams(0), step=0, settings={}, requires=requires
    ).old_log_prob


@pytest.mark.slow
def test_an_adapter_by_import_path_serves_as_the_shipped_one(folder: Path, tmp_path: Path) -> None:
    by_path = domain(folder, tmp_path, f"{HERE}:Mine")
    assert type(by_path.denoiser.adapter) is Mine  # type: ignore[attr-defined]
    assert torch.equal(log_probs(by_path), log_probs(domain(folder, tmp_path, None)))


REFUSED = {
    f"{HERE}:Min": "has no 'Min'; it has Flat, Lacking, Mine, NeedsArguments, TwoLengths, ",
    "no_such_module:Mine": "the module 'no_such_module' cannot be imported: ModuleNotFoundError",
    f"{HERE}:Lacking": "Lacking lacks encode; groupwise_images.diffusion.pipeline_adapter.PipelineAdapter says what",
    f"{HERE}:folder": "does not extend groupwise_images.diffusion.pipeline_adapter.PipelineAdapter; write class ",
    f"{HERE}:NeedsArguments": "missing a required argument: 'size'",
    "NoSuchPipeline": "no installed package brings it (entry points of 'groupwise.pipelines': ",
}


@pytest.mark.parametrize(("path", "reason"), REFUSED.items(), ids=[path.rpartition(":")[2] for path in REFUSED])
def test_a_wrong_path_is_refused_in_one_line_when_it_is_read(path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(Pretrained, {"path": "models/any", "pipeline": path})
    assert f"pipeline = {path!r}: " in str(caught.value)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


WRONG = {
    "TwoLengths": "TwoLengths.encode: 'encoder_hidden_states' is [1, 272, 16] of the prompts and [1, 7, 16] of the neg",
    "Flat": "Flat.forward returned [1, 128] for latents of [1, 4, 8, 4]; return one prediction of the latents' shape",
}


@pytest.mark.parametrize(("name", "reason"), WRONG.items())
def test_a_wrong_adapter_is_refused_in_one_line_when_it_is_asked(
    name: str, reason: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        log_probs(domain(folder, tmp_path, f"{HERE}:{name}"))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_adapter_for_another_class(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"holds a StableDiffusion3Pipeline, and model.pipeline = .* is for a WanPipel"
    ):
        domain(folder, tmp_path, "groupwise_images.diffusion.models.families:Wan")
