"""The size of an image as a JPEG file."""

from __future__ import annotations

import io

import torch
from PIL import Image

from groupwise_images.reward.jpeg_size import JpegSize


def test_jpeg_is_the_size_that_pillow_writes() -> None:
    image = torch.randint(256, (17, 23, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    file = io.BytesIO()
    Image.fromarray(image.numpy()).save(file, format="JPEG", quality=80)
    assert JpegSize(quality=80)([""], [image]) == [-len(file.getvalue()) / 1000]
    assert JpegSize(quality=80, prefer="large")([""], [image]) == [len(file.getvalue()) / 1000]
    assert JpegSize(quality=20)([""], [image])[0] > JpegSize(quality=80)([""], [image])[0]
