from __future__ import annotations

import pytest
import torch
from PIL import ImageDraw

from groupwise.reward import RewardTable
from groupwise_images.diffusion.evaluate import CAPTION, diversity_of_prompts, grid, metrics, records
from groupwise_images.diffusion.splits import as_prompt


def images(*levels: int, colour: bool = False) -> torch.Tensor:
    found = torch.tensor(levels, dtype=torch.uint8).view(-1, 1, 1).expand(-1, 2, 2)
    return found.unsqueeze(-1).expand(-1, 2, 2, 3).contiguous() if colour else found.contiguous()


def test_means_leave_out_what_is_missing() -> None:
    table = RewardTable(
        {"seen": [1.0, None, 0.0, 1.0], "judge": [0.0, 0.0, 0.0, 1.0]}, {"seen": 2.0}, judges=frozenset({"judge"})
    )
    found = metrics("ode", table, diversity_of_prompts(images(0, 255, 0, 0), 2))
    assert found == {
        "ode/reward": pytest.approx(4 / 3),
        "ode/seen": pytest.approx(2 / 3),
        "ode/judge": 0.25,
        "ode/diversity": pytest.approx(0.5),
    }


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


def test_records_hold_the_rewards_of_all_and_the_images_of_some() -> None:
    prompts = [as_prompt({"prompt": "a"}), as_prompt({"prompt": "b"})]
    found = records("ode", prompts, images(1, 2, 3, 4), 2, RewardTable({"seen": [1.0, 0.0, 0.5, 0.25]}), 1)
    assert [record["rewards"]["seen"] for record in found] == [1.0, 0.0, 0.5, 0.25]
    assert [(record["key"], record["sample"]) for record in found[1:3]] == [(prompts[0].key, 1), (prompts[1].key, 0)]
    assert [("image" in record) for record in found] == [True, False, False, False]


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
