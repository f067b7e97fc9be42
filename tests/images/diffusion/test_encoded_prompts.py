"""Prompts are encoded one by one, once, and read from files afterwards."""

from __future__ import annotations

import shutil
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
from groupwise_images.diffusion.denoiser import Condition
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


def same(first: Condition, second: Condition) -> bool:
    assert first.unconditional is not None
    assert second.unconditional is not None
    pairs = [(first.tensors, second.tensors), (first.unconditional, second.unconditional)]
    return all(
        left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
        for left, right in pairs
    )


def test_many_prompts_are_encoded_one_by_one_and_once(model: Path, tmp_path: Path) -> None:
    denoiser = opened(model)
    rows = rows_of_encoders(denoiser)
    encoded = EncodedPrompts(denoiser, tmp_path)
    asked = encoded.of(prompts(30))
    condition = asked.select(torch.arange(30).repeat(2))
    assert set(rows) == {1}
    assert encoded.num_encoded == 30
    assert condition.tensors["encoder_hidden_states"].shape[0] == 60
    asked.select(torch.arange(30))
    assert encoded.num_encoded == 30
    expected = denoiser.encode([prompt.columns for prompt in prompts(3)])
    found = asked.select(torch.arange(3))
    for name, value in expected.tensors.items():
        torch.testing.assert_close(found.tensors[name], value, rtol=0, atol=1e-5, msg=name)


def test_another_process_reads_the_same_bits_and_encodes_nothing(model: Path, tmp_path: Path) -> None:
    first, second = (EncodedPrompts(opened(model), tmp_path) for _ in range(2))
    asked = prompts(3, "blurred")
    places = torch.tensor([2, 0, 2])
    expected = first.of(asked).select(places)
    assert same(second.of(asked).select(places), expected)
    assert (first.num_encoded, second.num_encoded) == (2, 0)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 3, "two prompts, and the negative one that they share"
    other = second.of(prompts(3, "grey")).select(places)
    assert second.num_encoded > 0, "another negative prompt is another encoding"
    assert not same(other, expected)


@pytest.mark.slow
def test_other_weights_of_an_encoder_are_another_cache(model: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(model, changed)
    denoiser = opened(model)
    assert opened(changed).encoders == denoiser.encoders, "a copy has the same content"
    file = next((changed / "text_encoder").glob("*.safetensors"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    assert opened(changed).encoders != denoiser.encoders


def test_a_file_that_is_not_whole_is_encoded_again(model: Path, tmp_path: Path) -> None:
    first = EncodedPrompts(opened(model), tmp_path)
    expected = first.of(prompts(1)).select(torch.zeros(1, dtype=torch.long))
    for file in tmp_path.rglob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:20])
    second = EncodedPrompts(opened(model), tmp_path)
    assert same(second.of(prompts(1)).select(torch.zeros(1, dtype=torch.long)), expected)
    assert second.num_encoded == 1


@pytest.mark.slow
def test_few_encoded_prompts_stay_in_memory(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_prompts, "MOST_BYTES", 1)
    encoded = EncodedPrompts(opened(model), tmp_path)
    encoded.of(prompts(20)).select(torch.arange(20))
    assert len(encoded._entries) == 2
    encoded.of(prompts(20)).select(torch.arange(20))
    assert encoded.num_encoded == 20, "the others come from their files"


def test_classes_are_no_texts_and_write_nothing(tmp_path: Path) -> None:
    from tests.images.diffusion.small import domain

    small = domain()
    encoded = EncodedPrompts(small.denoiser, tmp_path)
    condition = encoded.of(small.prompts([3, 5])).select(torch.tensor([1, 1, 0]))
    assert condition.tensors["label"].tolist() == [5, 5, 3]
    assert not list(tmp_path.rglob("*"))
