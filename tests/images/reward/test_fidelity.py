from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from torchmetrics.functional.image import structural_similarity_index_measure

from groupwise.config import ConfigError, validate
from groupwise.reward.base import RewardError
from groupwise_images.reward.similarity import Psnr, SquaredError, Ssim, psnr, psnr_map, ssim, ssim_map

RANDOM = np.random.default_rng(0)
TARGET = RANDOM.random((3, 32, 28))
IMAGE = (TARGET + 0.1 * RANDOM.standard_normal(TARGET.shape)).clip(0, 1)


def test_psnr_is_that_of_scikit_image() -> None:
    assert psnr(IMAGE, TARGET) == pytest.approx(peak_signal_noise_ratio(TARGET, IMAGE, data_range=1.0), abs=1e-5)
    assert psnr(TARGET, TARGET) == 100


def test_ssim_is_that_of_scikit_image_away_from_the_edge() -> None:
    settings = {
        "data_range": 1.0,
        "gaussian_weights": True,
        "sigma": 1.5,
        "use_sample_covariance": False,
        "channel_axis": 0,
    }
    _, expected = structural_similarity(TARGET, IMAGE, full=True, **settings)
    assert ssim_map(IMAGE, TARGET)[5:-5, 5:-5] == pytest.approx(expected.mean(0)[5:-5, 5:-5], abs=1e-12)
    assert ssim(TARGET, TARGET) == pytest.approx(1)
    assert ssim(IMAGE, TARGET) < 1


def by_hand(image: np.ndarray, target: np.ndarray, window: int) -> np.ndarray:
    """Wang's formula with a truncated Gaussian, the image mirrored at its edges without repeating the edge itself: `[C,
    H, W]`.
    """
    sigma = 1.5 * window / 11

    def mean(values: np.ndarray) -> np.ndarray:
        return np.stack([gaussian_filter(channel, sigma, mode="mirror", radius=window // 2) for channel in values])

    one, two = mean(image), mean(target)
    across = mean(image * target) - one * two
    spread = mean(image**2) - one**2 + mean(target**2) - two**2
    return (2 * one * two + 0.01**2) * (2 * across + 0.03**2) / ((one**2 + two**2 + 0.01**2) * (spread + 0.03**2))


@pytest.mark.parametrize(
    ("channels", "size", "window"),
    [(3, (32, 28), 11), (1, (11, 20), 11), (1, (8, 8), 7), (3, (5, 9), 5), (1, (3, 3), 3), (1, (1, 4), 1)],
)
def test_ssim_is_the_mean_of_its_map_to_the_edge(channels: int, size: tuple[int, int], window: int) -> None:
    image, target = IMAGE[:channels, : size[0], : size[1]], TARGET[:channels, : size[0], : size[1]]
    expected = by_hand(image, target, window)
    assert ssim_map(image, target) == pytest.approx(expected.mean(0), abs=1e-9)
    assert ssim(image, target) == pytest.approx(expected.mean(), abs=1e-9)


def test_large_images_are_measured_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise_images.reward.similarity._PIECE", 32)
    target = np.kron(RANDOM.random((3, 5, 5)), np.ones((9, 16)))
    image = (target + 0.05 * RANDOM.standard_normal(target.shape)).clip(0, 1)
    assert target.shape == (3, 45, 80), "two rows of three pieces"
    image_tensor, target_tensor = (torch.as_tensor(pixels)[None] for pixels in (image, target))
    mean, full_map = structural_similarity_index_measure(
        image_tensor, target_tensor, data_range=1.0, sigma=1.5, return_full_image=True
    )
    assert ssim(image, target) == pytest.approx(float(mean), abs=1e-5)
    assert ssim_map(image, target) == pytest.approx(full_map[0].mean(0).numpy(), abs=1e-3)


def test_a_map_of_window_one_is_the_error_of_each_pixel() -> None:
    decibels = psnr_map(IMAGE, TARGET, 1)
    assert decibels == pytest.approx(-10 * np.log10(np.maximum(np.square(IMAGE - TARGET).mean(0), 1e-10)))
    uniform_decibels = psnr_map(np.full((1, 9, 9), 0.6), np.full((1, 9, 9), 0.5), 5)
    assert uniform_decibels == pytest.approx(20)


def test_luma_inside_a_border_is_measured_as_papers_do() -> None:
    """Bounds of super-resolution: `rgb2ycbcr`, the scale cut off at every edge, windows that lie inside."""
    target, image = ((pixels * 255).round().astype("uint8").transpose(1, 2, 0) for pixels in (TARGET, IMAGE))

    def y(pixels: np.ndarray) -> np.ndarray:
        red, green, blue = pixels.astype(float).transpose(2, 0, 1)
        return (16 + (65.481 * red + 128.553 * green + 24.966 * blue) / 255)[4:-4, 4:-4]

    (found,) = Psnr(channel="y", border=4)([""], [image], clean=[target])
    assert found == pytest.approx(peak_signal_noise_ratio(y(target), y(image), data_range=255), abs=1e-5)
    (found,) = Ssim(channel="y", border=4, edges="left_out")([""], [image], clean=[target])
    settings = {"data_range": 255, "gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    assert found == pytest.approx(structural_similarity(y(target), y(image), **settings), abs=1e-9)
    # Ten levels of red are 65.481 / 255 of ten levels of luma; grey is compared as it is, and a border is left out.
    redder = target // 2
    redder[..., 0] += 10
    (found,) = SquaredError(channel="y")([""], [redder], clean=[target // 2])
    assert found == pytest.approx(-((65.481 / 255 * 10 / 255) ** 2), rel=1e-12)
    framed, grey = target[..., 0].copy(), target[..., 0]
    framed[:3], framed[:, -3:] = 0, 255
    assert Psnr(channel="y", border=3)([""], [framed], clean=[grey]) == [100.0]
    assert Psnr(channel="y", border=2)([""], [framed], clean=[grey]) < [20.0]


def test_a_border_that_leaves_nothing_is_one_line() -> None:
    with pytest.raises(ConfigError, match="border = 2: a map has a value for every pixel; write border = 0"):
        validate(Psnr, {"border": 2, "result": "map"}, "test")
    for reward, message in (
        (Psnr(border=4), r"border = 4 leaves nothing of an image of \[8, 9\] pixels"),
        (Ssim(edges="left_out"), r"no window of 11 pixels lies inside \[8, 9\] pixels"),
    ):
        with pytest.raises(RewardError, match=message):
            reward([""], [np.zeros((8, 9), "uint8")], clean=[np.zeros((8, 9), "uint8")])
