"""Answers from the cache of their prompt, in the families of Qwen-VL, which count a picture as fewer positions than
tokens: as many forward passes as it should take, and the numbers of a pass an answer.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForImageTextToText,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from transformers.utils import is_torchvision_available

from groupwise.causal_lm.small import character_tokenizer
from groupwise_selection.task_model.config import ImageText
from groupwise_selection.task_model.image_text import ImageTextTaskModel, open_model
from groupwise_selection.task_model.template import TextTemplate

from .conftest import LETTERS, WORDS, example, query

SPECIAL = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
ANSWERS = ["red", "a1 green", "x", "blue b2"]


class Processor:
    """The pictures and placeholders of Qwen's processor, written out."""

    image_token = "<|vision_start|><|image_pad|><|vision_end|>"

    def __init__(self, tokenizer: Any, patch_size: int) -> None:
        side = 2 * patch_size
        self.tokenizer = tokenizer
        self.image_processor = Qwen2VLImageProcessorPil(
            patch_size=patch_size, min_pixels=side**2, max_pixels=9 * side**2
        )

    def __call__(self, text: list[str], images: list[list[Any]], return_tensors: str) -> dict[str, torch.Tensor]:
        pixels = dict(self.image_processor([image for row in images for image in row], return_tensors="pt"))
        sizes = iter((pixels["image_grid_thw"].prod(1) // 4).tolist())
        rows = []
        for row in text:
            first, *others = row.split("<|image_pad|>")
            rows.append(first + "".join("<|image_pad|>" * next(sizes) + other for other in others))
        ids = torch.tensor(self.tokenizer(rows)["input_ids"])
        pictured = (ids == self.tokenizer.convert_tokens_to_ids("<|image_pad|>")).long()
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "mm_token_type_ids": pictured, **pixels}


@pytest.fixture(scope="module", params=["qwen3_vl", pytest.param("qwen2_5_vl", marks=pytest.mark.slow)])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Processor]:
    """A model of random weights from its folder, and its processor."""
    tokenizer = character_tokenizer(LETTERS, words=[f" {word}" for word in WORDS], special=SPECIAL)
    names = ["image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"]
    ids = dict(zip(names, map(tokenizer.convert_tokens_to_ids, SPECIAL), strict=True))
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "bos_token_id": None,
        "eos_token_id": 1,
        "pad_token_id": 0,
    }
    vision = {"depth": 2, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
    vision |= {"spatial_merge_size": 2, "temporal_patch_size": 2}
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    torch.manual_seed(0)
    if request.param == "qwen2_5_vl":
        vision |= {"patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1]}
        text["rope_parameters"] = {**rope, "mrope_section": [1, 1, 2]}
        model = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids))
    else:
        vision |= {"patch_size": 16, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
        text |= {"head_dim": 8, "rope_parameters": {**rope, "mrope_section": [2, 1, 1], "mrope_interleaved": True}}
        model = Qwen3VLForConditionalGeneration(Qwen3VLConfig(text_config=text, vision_config=vision, **ids))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.15)
    folder = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder)
    loaded = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    return loaded, Processor(tokenizer, vision["patch_size"])


def picture(seed: int, side: int = 56) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, 2 * side, 3), dtype=np.uint8)


def task_model(opened: tuple[Any, Any]) -> ImageTextTaskModel:
    return ImageTextTaskModel(*opened, TextTemplate(question="{image}\nQ: {question}\nA:"), batch_size=4)


def rows() -> tuple[list[Any], list[list[Any]]]:
    asked = [query(f"q{number}", "a + b?", picture(number)) for number in range(4)]
    shown = [
        [example(10 * number + place, "c?", "red", picture(10 * number + place + 10)) for place in range(2)]
        for number in range(4)
    ]
    return asked, shown


def test_a_prompt_is_forwarded_once_and_its_answers_once(opened: tuple[Any, Any]) -> None:
    ours = task_model(opened)
    asked, shown = rows()
    widths: list[int] = []
    hook = opened[0].register_forward_hook(lambda module, args, kwargs, out: widths.append(1), with_kwargs=True)
    try:
        first = ours.score(asked, shown, [ANSWERS] * 4)
        # One answer is tried from the cache and without it.
        assert len(widths) == 3 + 2
        widths.clear()
        assert ours.score(asked, shown, [ANSWERS] * 4) == first
        assert len(widths) == 2
    finally:
        hook.remove()
    with torch.no_grad():
        plain = [
            ours._whole([row], [(0, ours._answers.ids(answer, "q"))])[0]
            for row in zip(asked, shown, strict=True)
            for answer in ANSWERS
        ]
    np.testing.assert_allclose(np.ravel(first), plain, rtol=1e-5, atol=1e-4)
    # Positions that take a picture for as many as its tokens would give other numbers.
    assert opened[0].model.rope_deltas.unique().tolist() != [0]


@pytest.mark.slow
def test_a_model_that_cannot_go_on_from_its_cache_says_so_once(
    opened: tuple[Any, Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = task_model(opened)
    asked, shown = rows()
    monkeypatch.setattr(ours, "_cached", lambda rows, answers: [0.0] * len(answers))
    with caplog.at_level(logging.WARNING, logger="groupwise"):
        scores = ours.score(asked[:2], shown[:2], [ANSWERS] * 2)
        ours.score(asked[:2], shown[:2], [ANSWERS] * 2)
    (record,) = caplog.records
    assert "cannot go on from its cache (it gives 0 nats in place of -" in record.getMessage()
    with torch.no_grad():
        expected = [ours._whole([(asked[1], shown[1])], [(0, ours._answers.ids(answer, "q"))])[0] for answer in ANSWERS]
    np.testing.assert_allclose(scores[1], expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(is_torchvision_available(), reason="the whole processor opens where torchvision is installed")
def test_a_processor_that_needs_torchvision_for_videos_alone_is_opened_without_it(
    opened: tuple[Any, Processor], tmp_path: Path
) -> None:
    model, plain = opened
    name = {"qwen2_5_vl": "Qwen2_5_VLProcessor", "qwen3_vl": "Qwen3VLProcessor"}[model.config.model_type]
    model.save_pretrained(tmp_path)
    plain.tokenizer.save_pretrained(tmp_path)
    pictures = plain.image_processor.to_dict() | {"image_processor_type": "Qwen2VLImageProcessor"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(pictures))
    videos = {"video_processor_type": "Qwen2VLVideoProcessor"}
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(videos))
    (tmp_path / "processor_config.json").write_text(json.dumps({"processor_class": name}))
    asked, shown = rows()
    template = TextTemplate(question="<|vision_start|>{image}<|vision_end|>\nQ: {question}\nA:")
    from_folder = open_model(ImageText(path=str(tmp_path), template=template, dtype="float32"))
    expected = task_model(opened).score(asked, shown, [ANSWERS] * 4)
    np.testing.assert_allclose(from_folder.score(asked, shown, [ANSWERS] * 4), expected, rtol=1e-5, atol=1e-4)
