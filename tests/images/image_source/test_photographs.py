from __future__ import annotations

import numpy as np
import pytest

from groupwise_images.image_source import Photographs


def test_no_photograph_is_in_both_halves_and_patches_do_not_repeat() -> None:
    found = Photographs(size=48, num_train=60, num_held_out=20).read()
    names = [{picture.key.split("-")[0] for picture in part} for part in (found.train, found.held_out)]
    assert names == [{"astronaut", "coffee", "rocket", "flower"}, {"cat", "china"}]
    assert len({picture.key for picture in found.train}) == 60
    assert len({picture.clean.tobytes() for picture in found.held_out}) == 20
    assert all(picture.clean.min() >= 0 and picture.clean.max() <= 1 for picture in found.train)
    assert np.isclose(found.train[0].clean.dtype.itemsize, 4)


def test_more_patches_than_there_are() -> None:
    with pytest.raises(ValueError, match=r"source.num_train = 5000: the photographs have \d+ patches of 200 pixels"):
        Photographs(size=200, num_train=5000).read()


def test_grey_photographs_are_the_brightness_that_pillow_sees() -> None:
    from PIL import Image

    colour, grey = (
        Photographs(size=48, num_train=4, num_held_out=2, grey=each).read().train[1] for each in (False, True)
    )
    expected = np.asarray(Image.fromarray((colour.clean.transpose(1, 2, 0) * 255).round().astype("uint8")).convert("L"))
    assert grey.clean.shape == (1, 48, 48)
    assert abs(grey.clean[0] * 255 - expected).max() <= 1
