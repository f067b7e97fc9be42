"""Videos: a reward of each frame is the mean of a video, and people see strips."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.images.diffusion.models.tiny import saved

from groupwise.config import ConfigError, merge, validate
from groupwise.reward import RewardError, RewardTable
from groupwise.reward.scoring.table import RewardEvent
from groupwise.streams import Streams
from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.domain import DiffusionDomain
from groupwise_images.diffusion.judged_images import as_strips, score_frames

HERE = "tests.images.diffusion.test_videos"


def red(completions: Sequence[Any], **columns: Any) -> list[float]:
    """The mean of an image's or a video's red."""
    return [float(image[..., 0].double().mean()) / 255 for image in completions]


def number_of_frames(completions: Sequence[Any], **columns: Any) -> list[float]:
    return [float(len(video)) if video.dim() == 4 else -1.0 for video in completions]


@pytest.fixture(scope="module")
def wan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("WanPipeline", tmp_path_factory.mktemp("wan"))


def domain(folder: Path, tmp_path: Path, changes: dict[str, Any] | None = None) -> DiffusionDomain:
    file = tmp_path / "prompts.txt"
    file.write_text("a red cat\ntwo dogs\n")
    table = {
        "model": {"kind": "pretrained", "path": str(folder), "size": [5, 16, 32]},
        "data": {"source": {"kind": "prompts", "path": str(file)}},
        "rewards": {"red": {"kind": "callable", "path": f"{HERE}:red"}},
        "num_steps": 2,
        "evaluation": {"num_images": 2},
    }
    return DiffusionDomain(validate(DiffusionConfig, merge(table, changes or {})), streams=Streams(0))


def drawn(opened: DiffusionDomain) -> Any:
    requires = frozenset({"log_prob"})
    return opened.sample(opened.prompts([0, 1]), 2, streams=Streams(0), step=0, settings={}, requires=requires)


def callable_reward(name: str) -> dict[str, Any]:
    return {name: {"kind": "callable", "path": f"{HERE}:{name}"}}


def test_frames_lie_side_by_side_in_a_strip() -> None:
    videos = torch.arange(2 * 3 * 4 * 5 * 3).reshape(2, 3, 4, 5, 3).to(torch.uint8)
    strips = as_strips(videos)
    assert strips.shape == (2, 4, 15, 3)
    for frame in range(3):
        assert torch.equal(strips[:, :, 5 * frame : 5 * frame + 5], videos[:, frame])
    images = torch.zeros(2, 4, 5, dtype=torch.uint8)
    assert as_strips(images) is images


def test_a_videos_reward_is_the_mean_over_its_frames() -> None:
    def score(prompts: list[Any], images: list[Any], columns: dict[str, list[Any]]) -> RewardTable:
        assert prompts == ["a"] * 3 + ["b"] * 3
        assert columns == {"answer": [1] * 3 + [2] * 3}
        values = [float(image[0, 0, 0]) for image in images]
        return RewardTable(
            {"level": values, "some": [None, 2.0, None, None, None, None]},
            {"level": 2.0},
            (RewardEvent("error", "some", member=4),),
            fields={"level": {"double": [2 * value for value in values], "said": list("abcdef")}},
            bounds={"level": (0, 255)},
            extras={"note": list("uvwxyz")},
        )

    videos = torch.tensor([[1, 2, 6], [10, 20, 30]], dtype=torch.uint8)[:, :, None, None, None].expand(2, 3, 4, 4, 3)
    table = score_frames(videos, ["a", "b"], {"answer": [1, 2]}, score)
    assert table.values == {"level": [3.0, 20.0], "some": [2.0, None]}
    assert table.weights == {"level": 2.0, "some": 1.0}
    assert [event.member for event in table.events] == [1]
    assert table.fields == {"level": {"double": [6.0, 40.0], "said": [list("abc"), list("def")]}}
    assert table.extras == {"note": [list("uvw"), list("xyz")]}
    assert table.bounds == {"level": (0, 255)}


def test_rewards_see_the_frames_or_the_whole_video(wan: Path, tmp_path: Path) -> None:
    opened = domain(wan, tmp_path)
    samples = drawn(opened)
    videos = samples.payload["images"]
    assert videos.shape == (4, 5, 16, 32, 3)
    assert videos.dtype == torch.uint8
    frames = videos[..., 0].double().flatten(2).mean(2) / 255
    assert opened.reward(samples).values["red"] == pytest.approx(frames.mean(1).tolist())
    whole = {"video_rewards": "whole", "rewards": callable_reward("number_of_frames")}
    assert domain(wan, tmp_path, whole).reward(samples).values["number_of_frames"] == [5.0] * 4


def test_a_video_where_images_are_asked(wan: Path, tmp_path: Path) -> None:
    opened = domain(wan, tmp_path, {"video_rewards": "whole", "rewards": {"small": {"kind": "jpeg_size"}}})
    with pytest.raises(
        RewardError, match=r'a completion is uint8 \[5, 16, 32, 3\]; .* domain.video_rewards = "frames"'
    ):
        opened.reward(drawn(opened))
    with pytest.raises(
        ConfigError, match=r"model.size = \[16, 32\]: a WanPipeline makes videos; write \[frames, height"
    ):
        domain(wan, tmp_path, {"model": {"size": [16, 32]}})
    with pytest.raises(
        ConfigError, match=r"model.size = \[6, 16, 32\]: the number of frames must be 1 more than a mul"
    ):
        domain(wan, tmp_path, {"model": {"size": [6, 16, 32]}})
    images = saved("StableDiffusion3Pipeline", tmp_path / "sd3")
    with pytest.raises(ConfigError, match=r"a StableDiffusion3Pipeline makes images; write \[height, width\]"):
        domain(images, tmp_path)
    with pytest.raises(ConfigError, match="video_rewards = 'whole': this model makes images, not videos"):
        domain(images, tmp_path, {"model": {"size": [16, 16]}, "video_rewards": "whole"})
    with pytest.raises(ConfigError, match="a WanPipeline makes videos, and can learn from no images"):
        opened.denoiser.to_latents(torch.zeros(1, 3, 16, 32))


def test_wan_of_two_denoisers_is_refused(wan: Path, tmp_path: Path) -> None:
    index = json.loads((wan / "model_index.json").read_text())
    folder = tmp_path / "wan"
    folder.mkdir()
    for part in wan.iterdir():
        (folder / part.name).symlink_to(part) if part.is_dir() else None
    (folder / "model_index.json").write_text(json.dumps(index | {"boundary_ratio": 0.9}))
    with pytest.raises(ConfigError, match=r"has boundary_ratio in its model_index.json \(Wan 2.2\), which is not supp"):
        domain(folder, tmp_path)
