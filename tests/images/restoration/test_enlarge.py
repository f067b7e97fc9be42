from __future__ import annotations

import numpy as np
import torch
from PIL import Image

from groupwise_images.restoration.network import enlarged


def test_enlargement_is_that_of_pillow() -> None:
    pixels = np.random.default_rng(0).random((9, 13)).astype("float32")
    for scale in (2, 3, 4):
        expected = np.asarray(Image.fromarray(pixels).resize((13 * scale, 9 * scale), Image.Resampling.BICUBIC))
        result = enlarged(torch.from_numpy(pixels)[None, None], scale)[0, 0].numpy()
        # Sixteen products of numbers below 1.3, in fp32.
        assert np.abs(result - expected).max() < 1e-5


def test_an_image_that_is_as_large_as_its_target_stays_itself() -> None:
    images = torch.rand(2, 3, 4, 5)
    assert enlarged(images, 1) is images
