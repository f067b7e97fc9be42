from __future__ import annotations

import numpy as np
import pytest

from groupwise_images.diffusion.digit_readers import neighbours, support_vectors
from groupwise_images.diffusion.source import load


@pytest.mark.parametrize(("reader", "unseen"), [(support_vectors, 1), (neighbours, 0)])
def test_reads_images_that_it_has_not_seen(reader: object, unseen: int) -> None:
    images, labels = load()
    pixels = [np.repeat((image * 255).astype("uint8")[:, :, None], 3, 2) for image in images[unseen::2]]
    found = reader(pixels)  # type: ignore[operator]
    assert found.shape == (len(pixels), 10)
    assert np.allclose(found.sum(1), 1)
    assert (found.argmax(1) == labels[unseen::2]).mean() > 0.975
