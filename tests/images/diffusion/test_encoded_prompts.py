"""Prompts are encoded one by one, once, and read from files afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.images.diffusion.models.tiny import saved

from groupwise.config import validate
from groupwise.domain.protocol import Prompt
from groupwise.streams import Streams
from groupwise_images.diffusion import image_prompts
from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.image_prompts import EncodedPrompts
from groupwise_images.diffusion.models.open import open_denoiser

NAME = "StableDiffusion3Pipeline"


def opened(folder: Path) -> Any:
    table = {
        "kind": "diffusion",
        "model": {"kind": "pretrained", "path": str(folder), "size": [16, 16]},
        "data": {"source": {"kind": "texts", "prompts": ["a"]}},
        "rewards": {"small": {"kind": "jpeg_size"}},
    }
    return open_denoiser(validate(DiffusionConfig, table), Streams(0), torch.device("cpu"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(NAME, tmp_path_factory.mktemp("pipeline") / "base")


def prompts(count: int, negative: str | None = None) -> list[Prompt]:
    negatives = {} if negative is None else {"negative_prompt": negative}
    return [Prompt(str(place), {"prompt": f"a cat number {place}", **negatives}) for place in range(count)]


def rows_of_encoders(denoiser: Any) -> list[int]:
    """The rows of every pass through a text encoder, from now on."""
    rows: list[int] = []

    def note(module: Any, arguments: Any, settings: Any) -> None:
        rows.append(len(arguments[0] if arguments else settings["input_ids"]))

    for name, part in denoiser.pipe.components.items():
        if name.startswith("text_encoder") and part is not None:
            part.register_forward_pre_hook(note, with_kwargs=True)
    return rows


def test_many_prompts_are_encoded_one_by_one_and_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    denoiser = opened(model)
    encoded, rows = EncodedPrompts(denoiser), rows_of_encoders(denoiser)
    asked = encoded.of(prompts(5))
    condition, num = asked.select(torch.arange(5).repeat(2)), len(rows)
    assert set(rows) == {1}
    assert condition.tensors["encoder_hidden_states"].shape[0] == 10
    found = asked.select(torch.arange(3))
    assert len(rows) == num
    for name, value in denoiser.encode([prompt.columns for prompt in prompts(3)]).tensors.items():
        torch.testing.assert_close(found.tensors[name], value, rtol=0, atol=1e-5, msg=name)
    num = len(rows)
    encoded.of(prompts(3, "grey")).select(torch.arange(3))
    assert len(rows) > num, "another negative prompt is another encoding"
    monkeypatch.setattr(image_prompts, "MOST_BYTES", 1)
    asked.select(torch.arange(5))
    assert len(encoded._entries) == 1
