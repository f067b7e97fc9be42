"""Images as 8 bits, by hand."""

from __future__ import annotations

import pytest
import torch

from groupwise.config import ConfigError
from groupwise_images.image_evaluation import as_pictures


def test_levels_round_to_the_nearest_and_stay_inside() -> None:
    found = as_pictures(torch.tensor([-1.0, 0.2, 0.999, 2.0]).view(1, 1, 2, 2))
    assert found.dtype == torch.uint8
    assert found.flatten().tolist() == [0, 51, 255, 255]
    # Half a level up: 127.5 is 128, and a hair below it 127.
    assert as_pictures(torch.tensor([127.5 / 255, 127.4 / 255]).view(1, 1, 1, 2)).flatten().tolist() == [128, 127]


def test_colours_come_last_and_one_channel_has_no_axis() -> None:
    images = torch.stack([torch.full((4, 5), level / 255) for level in (10.0, 20.0, 30.0)])[None]
    found = as_pictures(images)
    assert found.shape == (1, 4, 5, 3)
    assert found[0, 1, 2].tolist() == [10, 20, 30]
    assert found.is_contiguous()
    assert as_pictures(images[:, :1]).shape == (1, 4, 5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_level_survives_the_way_there_and_back(dtype: torch.dtype) -> None:
    levels = torch.arange(256).view(1, 1, 16, 16)
    given = (levels.double() / 255).to(dtype)
    off = (as_pictures(given).long() - levels[:, 0]).abs().max()
    assert off <= (1 if dtype == torch.bfloat16 else 0), "eight bits of bfloat16 hold a level to within one"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_no_picture(value: float) -> None:
    images = torch.zeros(2, 1, 2, 2)
    images[1, 0, 1, 1] = value
    with pytest.raises(ConfigError, match="NaN or infinity"):
        as_pictures(images)
