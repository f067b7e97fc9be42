"""The aesthetic head on a CLIP of random weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests.tiny_clip import IMAGE_SIZE, build_clip

from groupwise.reward import RewardError, score
from groupwise_images.reward.preference import Aesthetic, LoadedClip

IMAGES = [
    torch.randint(256, (IMAGE_SIZE, IMAGE_SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    for seed in range(3)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clip")
    build_clip(path, projection=6)
    torch.manual_seed(1)
    widths = {0: (6, 5), 2: (5, 4), 11: (4, 1)}
    head = {f"layers.{number}.weight": torch.randn(after, before) for number, (before, after) in widths.items()}
    save_file(
        head | {f"layers.{number}.bias": torch.randn(after) for number, (_, after) in widths.items()},
        path / "head.safetensors",
    )
    return path


def test_the_head_is_applied_in_the_order_of_its_numbers(folder: Path) -> None:
    values = score(
        {"a": Aesthetic(path=str(folder), head=str(folder / "head.safetensors"), batch_size=2)}, [""] * 3, IMAGES
    ).values["a"]
    features = LoadedClip.load("aesthetic", str(folder), "cpu", "").image_features(IMAGES)
    from safetensors.torch import load_file

    head = load_file(folder / "head.safetensors")
    for number in (0, 2, 11):
        features = features @ head[f"layers.{number}.weight"].T + head[f"layers.{number}.bias"]
    assert torch.tensor(values) == pytest.approx(features[:, 0].detach(), abs=1e-5)
    assert max(values) - min(values) > 0.01


def test_a_head_that_is_missing_broken_or_of_another_width_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RewardError, match=r"is no file; the head is sac\+logos\+ava1-l14-linearMSE\.pth"):
        Aesthetic(path=str(folder), head=str(tmp_path / "none.safetensors")).open()
    (tmp_path / "broken.safetensors").write_bytes(b"no")
    with pytest.raises(RewardError, match="is no safetensors file"):
        Aesthetic(path=str(folder), head=str(tmp_path / "broken.safetensors")).open()
    save_file({"layers.0.weight": torch.zeros(1, 7), "layers.0.bias": torch.zeros(1)}, tmp_path / "wide.safetensors")
    with pytest.raises(RewardError, match="does not lead from the model's 6 features to one number"):
        Aesthetic(path=str(folder), head=str(tmp_path / "wide.safetensors")).open()
