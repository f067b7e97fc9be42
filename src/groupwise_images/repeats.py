"""Tries, before a run, whether a user's degradation can be repeated: by its arguments and its generator alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from groupwise.config import ConfigError, Problem
from groupwise.streams import capture, restore
from groupwise_images.degradation import CallableDegradation, Degradation, Mixed

_GLOBAL: Mapping[str, Callable[[int], object]] = {
    "np.random": np.random.seed,
    "random": random.seed,
    # Not torch.manual_seed, which would seed CUDA too.
    "torch": torch.default_generator.manual_seed,
}
_ADVICE = {
    "np.random": "random.normal(0, 0.1, image.shape)",
    "random": "random.integers(8)",
    "torch": "torch.Generator().manual_seed(int(random.integers(2**63)))",
}
_ROUNDING = 1e-5


def check_repeats(degradation: Degradation, image: np.ndarray) -> None:
    """Refuses functions of the user's own that would degrade otherwise in another run of the same seed, or in a resumed
    one.

    Each is called a few times on one image with a generator in the same state, while the global generators of numpy,
    Python and torch are in others; they are put back.

    Args:
        degradation: of a configuration; nothing is tried of a shipped one.
        image: fp32 `[C, H, W]` in [0, 1].

    Raises:
        ConfigError: a function draws from a global generator, or keeps something between calls.
    """
    captured = capture()
    try:
        for function, given in _functions(degradation, image):
            _check(function, given)
    finally:
        restore(captured)


def _functions(degradation: Degradation, image: np.ndarray) -> Iterator[tuple[CallableDegradation, np.ndarray]]:
    """Yields the functions in a degradation, each with an image as it is given one."""
    if isinstance(degradation, CallableDegradation):
        yield degradation, image
    if isinstance(degradation, Mixed):
        for part in degradation.parts:
            yield from _functions(part, image)
            if degradation.choose == "all":
                image = part(image, np.random.default_rng(0))


def _check(degrade: CallableDegradation, image: np.ndarray) -> None:
    place = f"degradation.path = {str(degrade.path)!r}"
    expected = _called(degrade, image)
    # Something else comes between, which a function that counts, or keeps its first draw, sees.
    _called(degrade, image[:, ::-1], seed=1)
    if not all(_same(_called(degrade, image), expected) for _ in range(2)):
        message = (
            "it degraded the same image in two ways with the same generator, so that no run of it can be repeated or"
            " resumed; keep nothing between calls, and draw from the generator that it is handed, degrade(image,"
            " random), not from one of its own (np.random.default_rng())"
        )
        raise ConfigError(Problem(place, message))
    for name in _GLOBAL:
        if not _same(_called(degrade, image, moved=name), expected):
            message = (
                f"it draws from the global generator of {name}, so that no run of it can be repeated or resumed; draw"
                f" from the generator that it is handed, degrade(image, random): {_ADVICE[name]}"
            )
            raise ConfigError(Problem(place, message))


def _called(
    degrade: CallableDegradation, image: np.ndarray, *, seed: int = 0, moved: str = ""
) -> tuple[np.ndarray, object]:
    """Returns the degraded image and the generator's state afterwards.

    Args:
        seed: of the generator that is handed over.
        moved: the global generator that is in another state than otherwise.
    """
    for name, set_seed in _GLOBAL.items():
        set_seed(1 if name == moved else 0)
    generator = np.random.default_rng(seed)
    return degrade(image, generator), generator.bit_generator.state


def _same(found: tuple[np.ndarray, object], expected: tuple[np.ndarray, object]) -> bool:
    """Compares two calls; sums of several threads may round otherwise."""
    return found[1] == expected[1] and np.allclose(found[0], expected[0], rtol=0, atol=_ROUNDING)
