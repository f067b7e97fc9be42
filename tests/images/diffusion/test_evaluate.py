from __future__ import annotations

import pytest
import torch
from PIL import ImageDraw

from groupwise_images.diffusion.evaluate import CAPTION, diversity_of_prompts, grid


def images(*levels: int, colour: bool = False) -> torch.Tensor:
    found = torch.tensor(levels, dtype=torch.uint8).view(-1, 1, 1).expand(-1, 2, 2)
    return found.unsqueeze(-1).expand(-1, 2, 2, 3).contiguous() if colour else found.contiguous()


def test_diversity_is_within_a_prompt() -> None:
    assert diversity_of_prompts(images(0, 0, 255, 255), 2) == [0.0, 0.0]
    # Pairs of three levels 0, 51, 255: distances .2, 1, .8.
    for colour in (False, True):
        (found,) = diversity_of_prompts(images(0, 51, 255, colour=colour), 3)
        assert found == pytest.approx((0.2 + 1.0 + 0.8) / 3)


@pytest.mark.parametrize("colour", [False, True])
def test_a_grid_has_a_row_a_prompt(colour: bool) -> None:
    found = grid(images(10, 20, 30, 40, 50, 60, colour=colour), 2, num_rows=2, num_columns=5)
    assert found.shape == (65, 65, *([3] if colour else []))
    assert found[0, 0].flatten()[0] == 10
    assert found[0, 33].flatten()[0] == 20
    assert found[33, 0].flatten()[0] == 30
    assert found[32, 0].flatten()[0] == 255


@pytest.mark.parametrize("colour", [False, True])
def test_a_row_carries_its_prompt(colour: bool) -> None:
    shown = images(10, 20, 30, 40, 50, 60, colour=colour)
    found, other = (
        grid(shown, 2, num_rows=3, num_columns=2, prompts=texts)
        for texts in (("a cat", "two dogs", "x" * 200), ("a cat", "two cats", "\u732b"))
    )
    height = 32 + 1 + CAPTION
    assert found.shape == (3 * height - 1, 65, *([3] if colour else []))
    captions = [[picture[row * height : row * height + CAPTION] for row in range(3)] for picture in (found, other)]
    assert all((caption < 128).any() for captions_of_one in captions for caption in captions_of_one)
    assert torch.equal(captions[0][0], captions[1][0])
    assert not torch.equal(captions[0][1], captions[1][1])
    for row in range(3):
        below = found[row * height + CAPTION : (row + 1) * height - 1, :32]
        assert torch.equal(below, grid(shown, 2, num_rows=3, num_columns=2)[row * 33 : row * 33 + 32, :32])


def test_the_caption_of_a_long_prompt_measures_no_more_letters_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    image = torch.zeros(1, 64, 64, dtype=torch.uint8)
    long, longer = (grid(image, 1, 1, 1, ["word " * num]) for num in (100, 2000))
    assert torch.equal(long, longer)
    measured: list[int] = []
    textlength = ImageDraw.ImageDraw.textlength

    def counted(draw: ImageDraw.ImageDraw, text: str) -> float:
        measured.append(len(text))
        return textlength(draw, text)

    monkeypatch.setattr(ImageDraw.ImageDraw, "textlength", counted)
    grid(image, 1, 1, 1, ["word " * 2000])
    assert sum(measured) < 64 * 70
