from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from torchmetrics.functional.image import structural_similarity_index_measure

from groupwise_images.reward.similarity import psnr, psnr_map, ssim, ssim_map

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
