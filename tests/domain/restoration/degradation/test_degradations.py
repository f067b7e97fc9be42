"""What every degradation does to an image, and that it can be repeated."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise.domain.restoration.degradation import Blur, GaussianNoise, Jpeg, LowLight, Mixed, Rain

IMAGE = np.random.default_rng(0).random((3, 24, 16)).astype("float32")
EVERY = [
    GaussianNoise(sigma=0.1),
    Blur(sigma=1.0),
    LowLight(),
    Jpeg(quality=20),
    Rain(density=0.05),
    Mixed(parts=(Blur(), GaussianNoise())),
]


@pytest.mark.parametrize("degrade", EVERY, ids=lambda each: each.kind)
def test_same_draws_same_image_and_the_form_is_kept(degrade: GaussianNoise) -> None:
    for image in (IMAGE, IMAGE[:1]):
        first, second = (degrade(image, np.random.default_rng(5)) for _ in range(2))
        assert first.dtype == np.float32
        assert first.shape == image.shape
        assert np.array_equal(first, second)
        assert not np.array_equal(first, image)


def test_noise_has_its_spread() -> None:
    image = np.zeros((1, 200, 200), "float32")
    assert GaussianNoise(sigma=0.25)(image, np.random.default_rng(0)).std() == pytest.approx(0.25, rel=0.02)


def test_a_blur_keeps_the_light_and_takes_the_detail() -> None:
    point = np.zeros((1, 21, 21), "float32")
    point[0, 10, 10] = 1
    blurred = Blur(sigma=1.0)(point, np.random.default_rng(0))
    assert blurred.sum() == pytest.approx(1, rel=1e-4)
    assert blurred[0, 10, 10] == pytest.approx(1 / (2 * np.pi), rel=0.03)


def test_photons_are_counted() -> None:
    image = np.full((1, 200, 200), 1.0, "float32")
    dark = LowLight(gain=0.2, gamma=1.0, photons=100.0)(image, np.random.default_rng(0))
    assert dark.mean() == pytest.approx(0.2, rel=0.01)
    assert dark.var() == pytest.approx(0.2 / 100, rel=0.05)


def test_a_lower_quality_loses_more() -> None:
    smooth = (
        np.tile(np.linspace(0, 1, 32, dtype="float32"), (3, 32, 1)) * np.linspace(1, 0, 32, dtype="float32")[:, None]
    )
    worse, better = (
        np.abs(Jpeg(quality=quality)(smooth, np.random.default_rng(0)) - smooth).mean() for quality in (5, 90)
    )
    assert worse > 2 * better


def test_streaks_only_add_light_and_lean_one_way() -> None:
    wet = Rain(density=0.02, length=12, angle=0.0, strength=0.5)(
        np.full((1, 40, 40), 0.25, "float32"), np.random.default_rng(3)
    )
    assert wet.min() == np.float32(0.25)
    assert wet.max() == np.float32(0.75)
    # Without a lean, a streak stays in its column: rows differ more than columns.
    streaks = wet[0] > 0.5
    assert streaks[:-1][streaks[1:]].mean() > 0.7


def test_one_of_several_is_drawn_for_each_image() -> None:
    dark, none = LowLight(gain=0.1, gamma=1.0, photons=None), GaussianNoise(sigma=0.0)
    means = [Mixed(parts=(dark, none), choose="one")(IMAGE, np.random.default_rng(seed)).mean() for seed in range(20)]
    assert {round(float(mean / IMAGE.mean()), 3) for mean in means} == {0.1, 1.0}
