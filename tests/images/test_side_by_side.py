"""The picture of an evaluation."""

from __future__ import annotations

import pytest
import torch

from groupwise.reward import RewardTable
from groupwise_images.image_evaluation import _MARGIN, grid, side_by_side

NOTHING = RewardTable({})


@pytest.mark.parametrize("shape", [(8, 8), (8, 12, 3)])
def test_rows_hold_the_images_enlarged_with_names_and_numbers_beside_them(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    given = [[torch.randint(256, shape, generator=generator, dtype=torch.uint8) for _ in range(3)] for _ in range(3)]
    found = side_by_side(*given, [{}] * 3, NOTHING)
    height, width = shape[:2]
    factor = 96 // width
    assert found.shape == (3 * (factor * height + 16) - 2, _MARGIN + 3 * (factor * width + 2), 3)
    for row, images in enumerate(given):
        top = row * (factor * height + 16)
        for place, image in enumerate(images):
            left = _MARGIN + place * (factor * width + 2)
            shown = found[top : top + factor * height : factor, left : left + factor * width : factor]
            assert torch.equal(shown, image if image.dim() == 3 else image[..., None].expand(*shape, 3))
        assert (found[top : top + factor * height, :_MARGIN] < 128).any(), "its name"
        below = found[top + factor * height : top + factor * height + 14, _MARGIN:]
        assert bool((below < 128).any()) == (row < 2), "its numbers"


def test_answers_stand_below_restored_images_green_where_right_and_red_where_wrong() -> None:
    image = torch.full((8, 32), 255, dtype=torch.uint8)
    table = RewardTable({}, extras={"read by a reader": ["low", "\u4e00", ""]})
    canvas = side_by_side([image] * 3, [image] * 3, [image] * 3, [{"text": "low"}] * 3, table)
    for column, right in enumerate((True, False, False)):
        left = _MARGIN + column * 98
        caption = canvas[40 + 24 : 40 + 38, left : left + 96].flatten(0, 1).int()
        # Letters are smoothed against white: the colour of a wrong answer keeps the most red, of a right one green.
        darkest = caption[caption.sum(1).argmin()]
        assert (darkest[1] > darkest[0]) == right
        assert darkest.sum() < 500, "something stands there, a dash where nothing was read"


def test_a_grid_has_a_row_a_prompt_with_its_text_below() -> None:
    rows = [[torch.full((2, 2), 10 * (2 * row + place + 1), dtype=torch.uint8) for place in range(2)] for row in (0, 1)]
    found, other = (
        grid(rows, [[(text, "black")] for text in texts]) for texts in (("a cat", "x"), ("a cat", "y" * 999))
    )
    assert found.shape == (2 * (32 + 16) - 2, 2 * 34, 3)
    assert [int(found[row * 48, column * 34, 0]) for row in (0, 1) for column in (0, 1)] == [10, 20, 30, 40]
    assert torch.equal(found[:48], other[:48])
    assert not torch.equal(found[48:], other[48:])
    assert (found[32:46] < 128).any()
