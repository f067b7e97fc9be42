"""CLIP rewards on a CLIP of random weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.tiny_clip import IMAGE_SIZE, build_clip, clip_tokenizer
from transformers import CLIPModel

from groupwise.reward import RewardError, Rewards, score
from groupwise_images.reward.preference import ClipScore, PickScore

PROMPTS = ["a cat", "two dogs", "cat"]
GENERATOR = torch.Generator().manual_seed(0)
IMAGES = [torch.randint(256, (IMAGE_SIZE, IMAGE_SIZE, 3), dtype=torch.uint8, generator=GENERATOR) for _ in PROMPTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clip")
    build_clip(path)
    return path


def by_hand(folder: Path) -> torch.Tensor:
    """Cosines from the model alone: pixels normalised by hand (no resizing at this size), one text at a time."""
    model = CLIPModel.from_pretrained(folder).eval()
    mean, std = torch.tensor([0.48145466, 0.4578275, 0.40821073]), torch.tensor([0.26862954, 0.26130258, 0.27577711])
    tokenizer = clip_tokenizer()
    cosines = []
    with torch.no_grad():
        for prompt, image in zip(PROMPTS, IMAGES, strict=True):
            pixels = ((image / 255 - mean) / std).permute(2, 0, 1)[None]
            output = model(pixel_values=pixels, input_ids=tokenizer(prompt, return_tensors="pt")["input_ids"])
            cosines.append((output.image_embeds * output.text_embeds).sum())
    return torch.stack(cosines)


def test_the_score_is_the_cosine_of_image_and_prompt(folder: Path) -> None:
    values = score({"clip": ClipScore(path=str(folder), batch_size=2)}, PROMPTS, IMAGES).values["clip"]
    assert torch.tensor(values) / 100 == pytest.approx(by_hand(folder), abs=1e-4)
    assert max(values) - min(values) > 1


def test_pick_score_has_the_models_own_scale(folder: Path) -> None:
    scale = float(CLIPModel.from_pretrained(folder).logit_scale.detach().exp())
    values = score({"pick": PickScore(path=str(folder), batch_size=2)}, PROMPTS, IMAGES).values["pick"]
    assert torch.tensor(values) == pytest.approx(scale * by_hand(folder), abs=1e-3)


def test_a_long_prompt_loses_its_end(folder: Path) -> None:
    rewards = Rewards({"clip": ClipScore(path=str(folder))})
    long, longer = "abcdefghijklmnopqr", "abcdefghijklmnopqrstuv"
    long_score, longer_score = rewards.score([long, longer], [IMAGES[0]] * 2).values["clip"]
    assert long_score == pytest.approx(longer_score)


def test_what_is_missing_is_said_and_where_to_get_it(tmp_path: Path, folder: Path) -> None:
    for reward, repository in ((ClipScore, "openai/clip-vit-large-patch14"), (PickScore, "yuvalkirstain/PickScore_v1")):
        with pytest.raises(RewardError, match=f"is no folder.*hf download {repository} --local-dir"):
            reward(path=str(tmp_path / "nowhere")).open()
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(
        RewardError, match=r"cannot be loaded: .*model\.safetensors.*holds config\.json\. Get it with: hf download"
    ):
        ClipScore(path=str(tmp_path)).open()
