"""A degradation of a user's own that another run would not repeat is refused before the run."""

from __future__ import annotations

import random as python_random
from typing import Any

import numpy as np
import pytest
import torch
from tests.images.restoration import small

from groupwise.config import ConfigError, validate
from groupwise.streams import capture
from groupwise_images.degradation import Blur, CallableDegradation, Mixed
from groupwise_images.diffusion.image_prompts import ImagePrompts
from groupwise_images.diffusion.source import ImagePairs
from groupwise_images.repeats import check_repeats

IMAGE = np.random.default_rng(0).random((1, 8, 8)).astype("float32")
HERE = "tests.images.degradation.test_repeats"
KEPT: list[Any] = []


def by_numpy(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return image + np.random.normal(0, 0.1, image.shape)


def by_python(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return image * python_random.random()


def by_torch(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return image + 0.1 * torch.randn(image.shape).numpy()


def own_generator(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return image + np.random.default_rng().normal(0, 0.1, image.shape)


def counting(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Every second image is dark."""
    KEPT.append(None)
    return image / (1 + len(KEPT) % 2)


def first_draw_kept(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """One noise for all images of a process: another run begins with another image."""
    if not KEPT:
        KEPT.append(random.normal(0, 0.1, image.shape))
    return image + KEPT[0]


def seeded(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The global generators, seeded by the one that is handed over, repeat too."""
    seed = int(random.integers(2**31))
    np.random.seed(seed)
    generator = torch.Generator().manual_seed(seed)
    return image + np.random.normal(0, 0.1, image.shape) + 0.1 * torch.randn(image.shape, generator=generator).numpy()


WRONG = [
    ("by_numpy", r"draws from the global generator of np\.random, .*: random\.normal\(0, 0\.1, image\.shape\)$"),
    ("by_python", r"draws from the global generator of random, .* handed, .*: random"),
    ("by_torch", r"draws from the global generator of torch, .* torch\.Generator\(\)\.manual_seed"),
    ("own_generator", r"the same image in two ways .* not from one of its own"),
    ("counting", r"the same image in two ways .* keep nothing between calls"),
    ("first_draw_kept", r"the same image in two ways .* keep nothing between calls"),
]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    KEPT.clear()


@pytest.mark.parametrize(("name", "message"), WRONG)
def test_what_does_not_repeat_is_named_with_what_it_drew_from(name: str, message: str) -> None:
    path = rf"^degradation\.path = '{HERE}:{name}': it "
    before = capture()
    for degradation in (
        CallableDegradation(path=f"{HERE}:{name}"),
        Mixed(parts=(Blur(), CallableDegradation(path=f"{HERE}:{name}"))),
        Mixed(parts=(Blur(), CallableDegradation(path=f"{HERE}:{name}")), choose="one"),
    ):
        KEPT.clear()
        with pytest.raises(ConfigError, match=path + ".*" + message) as caught:
            check_repeats(degradation, IMAGE)
        assert "\n" not in str(caught.value)
    assert capture() == before, "the global generators of the run stay as they were"


def test_what_repeats_is_taken() -> None:
    salt = {"kind": "callable", "path": "tests.images.degradation.test_degradations:salt"}
    halved = {"kind": "callable", "path": "tests.images.degradation.test_degradations:quarter", "factor": 4}
    for table in ([salt], [halved, salt], [{"kind": "callable", "path": f"{HERE}:seeded"}]):
        check_repeats(validate(Mixed, {"parts": table}), IMAGE)
    check_repeats(Blur(), IMAGE)


def test_domains_refuse_it_before_anything_is_drawn() -> None:
    own = {"kind": "callable", "path": f"{HERE}:by_numpy"}
    with pytest.raises(ConfigError, match=r"global generator of np\.random"):
        small.domain(None, {**small.TABLE, "degradation": own})
    with pytest.raises(ConfigError, match=r"global generator of np\.random"):
        ImagePrompts(validate(ImagePairs, {"images": {"kind": "digits"}, "degradation": own}), None)
