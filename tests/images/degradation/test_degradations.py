"""What every degradation does to an image, and that it can be repeated."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise.config import ConfigError, ImportPath, validate
from groupwise_images.degradation import (
    Blur,
    CallableDegradation,
    Downscale,
    GaussianNoise,
    Haze,
    Jpeg,
    LowLight,
    Mixed,
    Rain,
)

IMAGE = np.random.default_rng(0).random((3, 24, 16)).astype("float32")
EVERY = [
    GaussianNoise(sigma=0.1),
    Blur(sigma=1.0),
    LowLight(),
    Jpeg(quality=20),
    Rain(density=0.05),
    Haze(),
    Downscale(factor=4),
    Mixed(parts=(Haze(), Downscale(factor=2), GaussianNoise())),
    Mixed(parts=(Blur(), GaussianNoise())),
]


@pytest.mark.parametrize("degrade", EVERY, ids=lambda each: each.kind)
def test_same_draws_same_image_and_the_form_is_kept(degrade: GaussianNoise) -> None:
    for image in (IMAGE, IMAGE[:1]):
        first, second = (degrade(image, np.random.default_rng(5)) for _ in range(2))
        assert first.dtype == np.float32
        assert first.shape == (len(image), image.shape[1] // degrade.factor, image.shape[2] // degrade.factor)
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


def salt(image, random, share=0.5):
    """A stranger's degradation: pixels that are white."""
    return np.where(random.random(image.shape) < share, 1.0, image)


def smaller(image, random):
    return image[:, ::2]


def not_a_number(image, random):
    return image * np.nan


def of_bytes(image, random):
    return (image * 255).astype("uint8")


def failing(image, random):
    image[:] = 0
    raise KeyError("sigma")


HERE = "tests.images.degradation.test_degradations"


def test_a_function_of_ones_own_is_called_with_its_arguments_and_the_generator():
    image = np.zeros((1, 8, 8), "float32")
    degradation = CallableDegradation(path=ImportPath(f"{HERE}:salt"), arguments={"share": 0.25})
    first, second = (degradation(image, np.random.default_rng(3)) for _ in range(2))
    assert first.dtype == np.float32
    assert np.array_equal(first, second)
    assert np.array_equal(first, (np.random.default_rng(3).random((1, 8, 8)) < 0.25).astype("float32"))
    assert not image.any()
    mixed = validate(Mixed, {"parts": [{"kind": "callable", "path": f"{HERE}:salt", "arguments": {"share": 1.0}}]})
    assert (mixed(image, np.random.default_rng(0)) == 1).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smaller", r"it gave an image of shape \[1, 4, 8\]; give one of \[1, 8, 8\]"),
        ("not_a_number", r"it gave values that are not finite"),
        ("of_bytes", r"it gave values up to 255, as of an image of 0 to 255; give numbers, mostly in 0 to 1"),
        ("failing", r"degradation.path = '.*:failing': the function failed: KeyError"),
        ("absent", r"has no 'absent'"),
    ],
)
def test_a_function_that_gives_something_else_is_named(name: str, message: str):
    image = np.ones((1, 8, 8), "float32")
    with pytest.raises(ConfigError, match=message):
        CallableDegradation(path=ImportPath(f"{HERE}:{name}"))(image, np.random.default_rng(0))
    assert (image == 1).all()


def test_a_box_is_the_mean_of_its_square_and_the_cubic_filter_keeps_a_slope() -> None:
    squares = IMAGE.reshape(3, 6, 4, 4, 4).mean((2, 4))
    assert np.allclose(Downscale(factor=4, filter="box")(IMAGE, np.random.default_rng(0)), squares, atol=1e-6)
    slope = np.broadcast_to(np.linspace(0.2, 0.8, 40, dtype="float32"), (1, 16, 40))
    shrunk = Downscale(factor=2)(slope, np.random.default_rng(0))[0]
    # The middle of two neighbouring pixels lies between their values; at the edge the filter has nothing to look at.
    assert np.allclose(shrunk[:, 3:-3], (slope[0, ::2, ::2] + slope[0, ::2, 1::2])[:, 3:-3] / 2, atol=1e-5)
    # Beside an edge the cubic filter swings beyond both sides, and a mean of squares does not.
    edge = np.where(np.arange(40) < 21, 0.25, 0.75).astype("float32") * np.ones((1, 16, 1), "float32")
    for kernel, overshoot in (("bicubic", True), ("box", False)):
        pixels = Downscale(factor=2, filter=kernel)(edge, np.random.default_rng(0))
        assert (pixels.min() < 0.24 and pixels.max() > 0.76) == overshoot


def test_a_side_that_is_no_multiple_of_the_factor_is_refused() -> None:
    for height, width in ((24, 18), (18, 24)):
        with pytest.raises(ConfigError, match=rf"degradation.factor = 4: an image of {height} x {width} pixels"):
            Downscale(factor=4)(np.zeros((1, height, width), "float32"), np.random.default_rng(0))


def test_factors_of_parts_multiply_and_a_choice_among_several_sizes_is_refused() -> None:
    assert Mixed(parts=(Downscale(factor=2), Blur(), Downscale(factor=4))).factor == 8
    assert Mixed(parts=(Downscale(factor=4), Downscale(factor=4, filter="box")), choose="one").factor == 4
    with pytest.raises(ValueError, match=r"would give images of several sizes"):
        Mixed(parts=(Blur(), Downscale(factor=2)), choose="one")


def test_haze_takes_light_and_adds_air_by_the_same_depth() -> None:
    haze = Haze(density=1.3, air=0.8)
    black, white = (haze(np.full((1, 30, 20), value, "float32"), np.random.default_rng(3)) for value in (0.0, 1.0))
    transmission = white - black
    assert np.allclose(black, (1 - transmission) * 0.8, atol=1e-6)
    # The nearest pixel is seen as it is, the furthest through the whole of the air.
    assert transmission.max() == pytest.approx(1, abs=1e-6)
    assert transmission.min() == pytest.approx(np.exp(-1.3), abs=1e-6)
    # It is smooth: neighbours are never far apart.
    assert np.abs(np.diff(transmission[0], axis=0)).max() < 0.2


def quarter(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Every fourth pixel."""
    return image[:, ::4, ::4]


def test_a_function_of_ones_own_says_by_how_much_it_shrinks() -> None:
    path = ImportPath("tests.images.degradation.test_degradations:quarter")
    degrade = CallableDegradation(path=path, factor=4)
    assert np.array_equal(degrade(IMAGE, np.random.default_rng(0)), IMAGE[:, ::4, ::4])
    with pytest.raises(ConfigError, match=r"shape \[3, 6, 4\]; give one of \[3, 12, 8\], degradation.factor = 2 times"):
        CallableDegradation(path=path, factor=2)(IMAGE, np.random.default_rng(0))
