"""Whether a classifier sees what was asked for: a function, and a folder of transformers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

import groupwise_images.reward.classifier as room
from groupwise.reward import RewardError, Rewards, score
from groupwise_images.reward.classifier import Classifier

GREY = [torch.full((2, 2), level, dtype=torch.uint8) for level in (0, 255, 255)]


def use(monkeypatch: pytest.MonkeyPatch, function: object) -> None:
    monkeypatch.setattr(room, "user_callable", lambda path, key, group: function)


def test_every_output_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, lambda images: torch.tensor([[0.0, math.log(3.0)], [math.log(4.0), 0.0], [0.0, 0.0]]))
    outputs = {
        "probability": [0.75, 0.8, 0.5],
        "correct": [1.0, 1.0, 1.0],
        "log_probability": [math.log(0.75), math.log(0.8), math.log(0.5)],
    }
    for output, expected in outputs.items():
        reward = Classifier(function="mine:classify", output=output)
        assert score({"c": reward}, [""] * 3, GREY, {"label": [1, 0, 0]}).values["c"] == pytest.approx(expected)


def test_an_image_whose_row_names_no_class_has_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, lambda images: torch.tensor([[0.0, float(image.mean())] for image in images]))
    reward = Classifier(function="mine:classify", output="correct", batch_size=1)
    assert score({"c": reward}, [""] * 3, GREY, {"label": [None, 1, 0]}).values["c"] == [None, 1.0, 0.0]
    assert reward.open()([""] * 3, GREY, label=[None] * 3) == [None, None, None]


def test_wrong_rows_wrong_classes_and_a_missing_column_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, lambda images: torch.zeros(2, 2))
    reward = Classifier(function="mine:classify")
    with pytest.raises(RewardError, match=r"returned \[2, 2\] for 3 images"):
        score({"c": reward}, [""] * 3, GREY, {"label": [0, 0, 0]})
    with pytest.raises(RewardError, match="'label' asks for 2, which is no class; write a number below 2"):
        score({"c": reward}, [""] * 2, GREY[:2], {"label": [0, 2]})
    with pytest.raises(RewardError, match="'c' needs the column 'label', which the data lacks; columns: prompt"):
        score({"c": reward}, [""] * 2, GREY[:2], {"prompt": [0, 2]})


def test_exactly_one_source() -> None:
    with pytest.raises(ValidationError, match="exactly one of path"):
        Classifier()
    with pytest.raises(ValidationError, match="a folder's model returns logits"):
        Classifier(path="folder", probabilities=True)


def test_a_folder_of_transformers_with_class_names(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 4,
        "patch_size": 2,
    }
    model = ViTForImageClassification(
        ViTConfig(**sizes, initializer_range=1.0, id2label={0: "cat", 1: "dog", 2: "fox"})
    ).eval()
    model.save_pretrained(tmp_path)
    ViTImageProcessorPil(size={"height": 4, "width": 4}, image_mean=[0.5] * 3, image_std=[0.25] * 3).save_pretrained(
        tmp_path
    )
    images = [
        torch.randint(256, (4, 4, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
        for seed in range(3)
    ]
    pixels = torch.stack([((image / 255 - 0.5) / 0.25).permute(2, 0, 1) for image in images])
    with torch.no_grad():
        expected = model(pixel_values=pixels).logits.softmax(-1)
    with Rewards({"c": Classifier(path=str(tmp_path), batch_size=2)}) as rewards:
        values = rewards.score([""] * 3, images, {"label": ["dog", 0, "fox"]}).values["c"]
        assert torch.tensor(values) == pytest.approx(expected[[0, 1, 2], [1, 0, 2]], abs=1e-5)
        with pytest.raises(RewardError, match="'horse', which is no class; write a name among cat, dog, fox"):
            rewards.score([""], images[:1], {"label": ["horse"]})


@pytest.mark.parametrize("output", ["correct", "probability", "log_probability"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_scores_that_are_not_finite_are_an_error(monkeypatch: pytest.MonkeyPatch, output: Any, value: float) -> None:
    """The place of NaN would be the likeliest class."""
    use(monkeypatch, lambda images: [[0.0, 1.0]] * 2 + [[value, 0.0]])
    reward = Classifier(function="mine:classify", output=output)
    with pytest.raises(RewardError, match="classifier: 'mine:classify' gives NaN or infinity"):
        score({"c": reward}, [""] * 3, GREY, {"label": [0, 0, 0]})
    # A class that is ruled out is an ordinary answer.
    use(monkeypatch, lambda images: [[0.0, -math.inf]] * 3)
    assert (
        score({"c": reward}, [""] * 3, GREY, {"label": [0, 0, 0]}).values["c"] == [0.0 if "log" in output else 1.0] * 3
    )
