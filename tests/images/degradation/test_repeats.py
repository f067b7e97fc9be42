"""A user's degradation is tried before a run: one that could not be repeated is refused."""

from __future__ import annotations

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


def by_torch(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return image + 0.1 * torch.randn(image.shape).numpy()


def own_generator(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return image + np.random.default_rng().normal(0, 0.1, image.shape)


def counting(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    KEPT.append(None)
    return image / (1 + len(KEPT) % 2)


def seeded(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Seeds global generators from the one that it is handed."""
    seed = int(random.integers(2**31))
    np.random.seed(seed)
    return image + np.random.normal(0, 0.1, image.shape)


@pytest.mark.parametrize("name", ["by_numpy", "by_torch", "own_generator", "counting"])
def test_what_does_not_repeat_is_refused(name: str) -> None:
    before, function = capture(), CallableDegradation(path=f"{HERE}:{name}")
    for degradation in (function, Mixed(parts=(Blur(), function))):
        KEPT.clear()
        with pytest.raises(ConfigError, match=r"the same image in two ways .* from the generator that it is handed"):
            check_repeats(degradation, IMAGE)
    assert capture() == before, "the global generators of the run stay as they were"


def test_what_repeats_is_taken() -> None:
    for path in ("tests.images.degradation.test_degradations:salt", f"{HERE}:seeded"):
        check_repeats(validate(Mixed, {"parts": [{"kind": "callable", "path": path}]}), IMAGE)
    check_repeats(Blur(), IMAGE)


def test_domains_refuse_it_before_anything_is_drawn() -> None:
    own = {"kind": "callable", "path": f"{HERE}:by_numpy"}
    with pytest.raises(ConfigError, match="the same image in two ways"):
        small.domain(None, {**small.TABLE, "degradation": own})
    with pytest.raises(ConfigError, match="the same image in two ways"):
        ImagePrompts(validate(ImagePairs, {"images": {"kind": "digits"}, "degradation": own}), None)
