"""Tries, before a run, whether a user's degradation can be repeated: by its arguments and its generator alone."""

import random

import numpy as np
import torch

from groupwise.config import ConfigError, Problem
from groupwise.streams import capture, restore
from groupwise_images.degradation import Degradation

_ROUNDING = 1e-5


def check_repeats(degradation: Degradation, image: np.ndarray) -> None:
    """Refuses a user's function that would give other images in another run of the same seed, or in a resumed run.

    It is called a few times on one image with a generator in the same state, while the global generators of numpy,
    Python and torch are in others; they are put back.

    Args:
        degradation: the degradation of a configuration.
        image: fp32 `[C, H, W]` in [0, 1].

    Raises:
        ConfigError: the function draws from a global generator, or keeps something between calls.
    """
    captured, results = capture(), []
    try:
        for seed in (0, 1, 1):
            np.random.seed(seed)
            random.seed(seed)
            # Not torch.manual_seed, which would seed CUDA too.
            torch.default_generator.manual_seed(seed)
            generator = np.random.default_rng(0)
            results.append((degradation(image, generator), generator.bit_generator.state))
    finally:
        restore(captured)
    (first, state), *others = results
    if not all(state == end and np.allclose(other, first, rtol=0, atol=_ROUNDING) for other, end in others):
        raise ConfigError(
            Problem(
                "degradation",
                "it degraded the same image in two ways with the same generator, so that no run of it can be repeated"
                " or resumed; keep nothing between calls, and draw from the generator that it is handed, degrade(image,"
                " random), not from a global one (np.random, random, torch) or one of its own",
            )
        )
