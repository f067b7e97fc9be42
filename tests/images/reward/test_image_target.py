from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from groupwise.reward import RewardError, Rewards
from groupwise_images.reward.lpips import Lpips
from groupwise_images.reward.similarity import Psnr, SquaredError, Ssim

try:
    import torchvision  # noqa: F401

    TORCHVISION = True
except (ImportError, OSError, RuntimeError):
    TORCHVISION = False

RANDOM = np.random.default_rng(0)
TARGET = torch.from_numpy(RANDOM.integers(0, 256, (16, 16, 3), dtype="uint8"))
NEAR = (TARGET.int() + 3).clamp(0, 255).to(torch.uint8)
FAR = 255 - TARGET


@pytest.mark.parametrize("reward", [Psnr(), Ssim(), Psnr(jpeg_quality=50), Psnr(scale=0.1), SquaredError()], ids=repr)
def test_nearer_earns_more(reward: Psnr) -> None:
    near, far = reward(["", ""], [NEAR, FAR], clean=[TARGET, TARGET])
    assert near > far


def test_a_codec_stands_between() -> None:
    """The image that is nearest before compression need not be so after it."""
    direct, after = Psnr()([""], [TARGET], clean=[TARGET])[0], Psnr(jpeg_quality=20)([""], [TARGET], clean=[TARGET])[0]
    assert direct == 100
    assert 5 < after < 25


def test_maps_become_a_number_and_an_array_a_member() -> None:
    rewards = Rewards({"near": Psnr(result="map", window=1), "ssim": Ssim()})
    with rewards:
        table = rewards.score(["a", "b"], [NEAR, FAR], {"clean": [TARGET, TARGET]})
    assert [pixel_map.shape for pixel_map in table.maps["near"]] == [(16, 16), (16, 16)]
    assert table.values["near"] == pytest.approx([float(pixel_map.mean()) for pixel_map in table.maps["near"]])
    assert list(table.maps) == ["near"]
    assert table.select([1]).maps["near"][0] is table.maps["near"][1]


def test_squared_errors_add_up_over_an_image_and_are_what_psnr_is_the_logarithm_of() -> None:
    changed = TARGET.clone()
    changed[:8, :8] = (changed[:8, :8].int() + 51).clamp(0, 255).to(torch.uint8)
    for quality in (None, 20):
        number = SquaredError(jpeg_quality=quality)([""], [changed], clean=[TARGET])[0]
        pixels = SquaredError(jpeg_quality=quality, result="map")([""], [changed], clean=[TARGET])[0]
        assert pixels.shape == (16, 16)
        assert pixels.mean() == pytest.approx(number)
        assert -10 * np.log10(-number) == pytest.approx(Psnr(jpeg_quality=quality)([""], [changed], clean=[TARGET])[0])
    untouched = SquaredError(result="map", scale=3.0)([""], [changed], clean=[TARGET])[0]
    assert (untouched[8:] == 0).all()
    assert (untouched[:, 8:] == 0).all()
    assert untouched.mean() == pytest.approx(3 * SquaredError()([""], [changed], clean=[TARGET])[0])


def test_sizes_must_agree_and_the_target_must_be_there() -> None:
    with Rewards({"near": Psnr()}) as rewards:
        with pytest.raises(RewardError, match=r"\[16, 16\] pixels and its target \(column 'clean'\) \[8, 16\]"):
            rewards.score(["a"], [NEAR], {"clean": [TARGET[:8]]})
        with pytest.raises(RewardError, match="clean"):
            rewards.score(["a"], [NEAR], {})


def mixed(prompts: list[str], completions: list[torch.Tensor]) -> list[object]:
    return [np.zeros((2, 2)), 1.0]


def broken(prompts: list[str], completions: list[torch.Tensor]) -> list[object]:
    return [np.full((2, 2), np.nan), np.zeros((2, 2))]


def test_maps_for_all_members_or_none() -> None:
    with Rewards({"odd": mixed}) as rewards, pytest.raises(RewardError, match=r"gave maps, and 1.0 for member 1"):
        rewards.score(["a", "b"], [NEAR, FAR])
    with (
        Rewards({"odd": broken}) as rewards,
        pytest.raises(RewardError, match=r"for member 0; write a map of finite numbers"),
    ):
        rewards.score(["a", "b"], [NEAR, FAR])


def test_lpips_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is not there, and one whose compiled part does not load beside this torch."""
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.setitem(sys.modules, "torchvision", None)  # what Python itself notes of a package that is not there
    needs = r"needs a torchvision that fits .*{}.*weights of network = 'alex' \(alexnet-.*pip install .*torchvision"
    with pytest.raises(RewardError, match=needs.format("ModuleNotFoundError")):
        Lpips().open()
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('torchvision::nms does not exist')\n")
    monkeypatch.delitem(sys.modules, "torchvision")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RewardError, match=needs.format(r"RuntimeError: torchvision::nms")):
        Lpips().open()


@pytest.mark.skipif(not TORCHVISION, reason="an extra: a torchvision that fits this torch")
def test_lpips_with_a_network_of_random_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real path, without the download: torchvision reads what lies in torch's hub folder."""
    from torchvision.models import squeezenet1_1

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    weights = tmp_path / "hub" / "checkpoints" / "squeezenet1_1-b8a52dc0.pth"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"no weights")
    with pytest.raises(RewardError, match=r"squeezenet1_1-b8a52dc0.pth could not be read"):
        Lpips(network="squeeze").open()
    torch.manual_seed(0)
    torch.save(squeezenet1_1().state_dict(), weights)
    target = torch.randint(0, 256, (32, 32, 3), dtype=torch.uint8)
    near = (target.int() + 8).clamp(0, 255).to(torch.uint8)
    same, different, far = Lpips(network="squeeze")([""] * 3, [target, near, 255 - target], clean=[target] * 3)
    assert same == 0 > different > far
