"""Networks whose output is larger than their input: sampled, evaluated, exported, reloaded, and refused where sizes do
not fit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.images.restoration.small import TABLE, UPSCALED, config, domain, nudge, sampled

from groupwise.config import ConfigError, merge
from groupwise.streams import Streams
from groupwise_images.restoration import loading
from groupwise_images.restoration.domain import RestorationDomain

FOUR = {"model": {"network": {"scale": 4}}, "degradation": {"factor": 4}}


@pytest.mark.parametrize("changes", [{}, FOUR], ids=["x2", "x4"])
def test_members_and_targets_are_larger_than_what_the_network_is_given(changes: dict[str, Any]) -> None:
    given = domain(changes, UPSCALED)
    samples = sampled(given)
    side = 8 // given.scale
    assert samples.payload["degraded"].shape == (6, 1, side, side)
    assert samples.payload["images"].shape == samples.payload["clean"].shape == (6, 8, 8)
    assert samples.mask.shape == (6, 64)
    assert {len(given.describe(samples, torch.tensor([0]))[0][name]) for name in ("image", "clean")} == {8}


@pytest.mark.parametrize("changes", [{}, FOUR], ids=["x2", "x4"])
def test_a_fresh_network_is_bicubic_enlargement_and_the_baseline_stays_when_it_moves(changes: dict[str, Any]) -> None:
    given = domain(changes, UPSCALED)
    before = given.evaluate(streams=Streams(0)).metrics
    # The baseline is that of 8 bits, a rounding that digits at 13 dB do not see.
    assert before["restored/psnr"] == pytest.approx(before["bicubic/psnr"], abs=0.01)
    nudge(given, 0.2)
    after = given.evaluate(streams=Streams(0)).metrics
    assert abs(after["restored/psnr"] - before["restored/psnr"]) > 0.1
    assert after["bicubic/psnr"] == before["bicubic/psnr"]
    assert set(after) <= set(given.metric_names)
    assert not any(name.startswith("bicubic") for name in domain().evaluate(streams=Streams(0)).metrics)


@pytest.mark.parametrize("changes", [{}, FOUR], ids=["x2", "x4"])
def test_what_is_exported_enlarges_as_the_run_did_and_trains_further(tmp_path: Path, changes: dict[str, Any]) -> None:
    given = domain(changes, UPSCALED)
    nudge(given)
    given.save(tmp_path)
    images = torch.rand(2, 1, 5, 3, dtype=torch.float64)
    loaded = loading.load(tmp_path)
    with torch.no_grad():
        assert torch.equal(loaded(images), given.module(images))
        assert loaded(images).shape == (2, 1, 5 * given.scale, 3 * given.scale)
    table = {**UPSCALED, "model": {"kind": "pretrained", "path": str(tmp_path)}}
    again = domain(changes if "degradation" not in changes else {"degradation": changes["degradation"]}, table)
    assert again.scale == given.scale
    assert torch.equal(sampled(again).payload["images"], sampled(given).payload["images"])
    with pytest.raises(ConfigError, match=r"domain: model.network.scale = \d: the network enlarges images, and these"):
        domain({}, merge(TABLE, {"model": {"kind": "pretrained", "path": str(tmp_path)}}))


def test_the_baseline_is_what_a_reward_for_psnr_gives_bicubic_enlargement() -> None:
    rewards = {"psnr": {"kind": "psnr"}, "ssim": {"kind": "ssim"}}
    metrics = domain({}, {**UPSCALED, "rewards": rewards}).evaluate(streams=Streams(0)).metrics
    # Both see the same levels of 8 bits; what is left is the rounding of fp32 before.
    assert metrics["restored/psnr"] == pytest.approx(metrics["bicubic/psnr"], abs=1e-6)
    assert metrics["restored/ssim"] == pytest.approx(metrics["bicubic/ssim"], abs=1e-6)
    inner = domain({"rewards": {"psnr": {"kind": "psnr", "border": 2}}}, UPSCALED).evaluate(streams=Streams(0)).metrics
    assert inner["bicubic/psnr"] != pytest.approx(metrics["bicubic/psnr"], abs=1e-3)
    assert inner["restored/psnr"] == pytest.approx(inner["bicubic/psnr"], abs=1e-6)


def test_pairs_of_two_sizes_are_cut_where_their_pixels_belong_together(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name in ("small", "large"):
        (tmp_path / name).mkdir()
    for number in range(4):
        pixels = random.integers(0, 256, (7, 9), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "small" / f"{number}.png")
        Image.fromarray(pixels.repeat(2, 0).repeat(2, 1)).save(tmp_path / "large" / f"{number}.png")
    source = {"kind": "folder", "clean": str(tmp_path / "large"), "degraded": str(tmp_path / "small"), "channels": 1}
    table: dict[str, Any] = {**UPSCALED, "source": {**source, "scale": 2, "num_held_out": 1}, "patch": 6}
    del table["degradation"], table["num_train"]
    given = domain({}, table)
    corners = set()
    for step in range(8):
        clean, degraded = given._pairs(given._train, Streams(1), step)
        assert clean.shape[2:] == (6, 6)
        assert torch.equal(clean, degraded.repeat_interleave(2, 2).repeat_interleave(2, 3))
        corners |= {tuple(image.flatten().tolist()) for image in degraded}
    assert len(corners) > 12
    assert given.evaluate(streams=Streams(0)).metrics["bicubic/psnr"] > 0
    table["source"]["scale"] = 3
    with pytest.raises(
        ConfigError, match=r"pair of sizes \[7, 9\] and \[14, 18\]; the clean one must have source.scale = 3"
    ):
        domain({"model": {"network": {"scale": 3}}}, table)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": {"network": {"kind": "residual"}}},
            r'enlarges them by 1; write network.kind = "upscaling" with scale = 2',
        ),
        ({"model": {"network": {"scale": 4}}}, r"2 times smaller .* enlarges them by 4; write model.network.scale = 2"),
        ({"degradation": {"kind": "blur"}}, r"scale = 2: the network enlarges images, and these are as large"),
        ({"patch": 5}, r"patch = 5 is no multiple of 2, .* write patch = 6"),
        ({"source": {"kind": "folder", "clean": "x", "scale": 2}}, r"source.scale = 2 is that of pairs"),
        ({"policy": {"block": 3}}, r"policy.block = 3: images of 8 x 8 pixels"),
    ],
)
def test_sizes_that_do_not_fit_are_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        domain(changes, UPSCALED)


def larger(scale: int) -> torch.nn.Module:
    """A network of one's own, which repeats pixels."""
    return torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), torch.nn.Upsample(scale_factor=scale))


def test_a_network_of_ones_own_says_its_scale_and_is_held_to_it() -> None:
    network = {"kind": "callable", "path": f"{__name__}:larger", "channels": 1, "arguments": {"scale": 2}, "scale": 2}
    given = RestorationDomain(config({"model": {"network": network}}, UPSCALED), streams=Streams(0))
    assert sampled(given).payload["images"].shape == (6, 8, 8)
    with pytest.raises(ConfigError, match=r"gives \[1, 1, 12, 12\] .* the same type and 2 times the sides"):
        domain({"model": {"network": {**network, "arguments": {"scale": 3}}}}, UPSCALED)
