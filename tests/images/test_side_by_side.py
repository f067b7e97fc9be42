"""The picture of an evaluation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.images.restoration.small import domain

from groupwise.streams import Streams
from groupwise_images.image_evaluation import _MARGIN, side_by_side
from groupwise_images.restoration.evaluate import fidelity_names
from groupwise_images.reward.similarity import Psnr


@pytest.mark.parametrize("shape", [(8, 8), (8, 12, 3)])
def test_rows_hold_the_images_enlarged_with_names_and_numbers_beside_them(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    given = [[torch.randint(256, shape, generator=generator, dtype=torch.uint8) for _ in range(3)] for _ in range(3)]
    found = side_by_side(*given)
    assert found is not None
    height, width = shape[:2]
    factor = 96 // width
    assert found.shape == (3 * factor * height + 2 * 16, 52 + 3 * (factor * width + 2), *shape[2:])
    for row, images in enumerate(given):
        top = row * (factor * height + 16)
        for place, image in enumerate(images):
            left = 52 + place * (factor * width + 2)
            assert torch.equal(
                found[top : top + factor * height : factor, left : left + factor * width : factor], image
            )
        assert (found[top : top + factor * height, :52] < 128).any(), "its name"
        below = found[top + factor * height : top + factor * height + 14, 52:]
        assert bool((below < 128).any()) == (row < 2), "its numbers"


def test_large_images_are_shown_by_their_middle() -> None:
    image = (torch.arange(301) % 256).to(torch.uint8).repeat(280, 1)
    found = side_by_side([image], [image], [image])
    assert found is not None
    assert torch.equal(found[:256, _MARGIN : _MARGIN + 256], image[12:268, 22:278])


def test_nothing_is_shown_without_images() -> None:
    assert side_by_side([], [], []) is None


def test_answers_stand_below_their_rows_green_where_right_and_red_where_wrong() -> None:
    image = torch.full((8, 32), 255, dtype=torch.uint8)
    answers = {"degraded": ["lo", ""], "restored": ["low", "\u4e00"], "clean": ["low", "owl"]}
    canvas = side_by_side([image] * 2, [image] * 2, [image] * 2, answers, ["low", "owl"])
    assert canvas is not None
    assert canvas.shape == (3 * (3 * 8 + 16) - 2, _MARGIN + 2 * 98, 3)
    for row, rights in enumerate([(False, False), (True, False), (True, True)]):
        for column, right in enumerate(rights):
            left = _MARGIN + column * 98
            caption = canvas[row * 40 + 24 : row * 40 + 38, left : left + 96].flatten(0, 1).int()
            # Letters are smoothed against white: the colour of a wrong answer keeps the most red, of a right one green.
            darkest = caption[caption.sum(1).argmin()]
            assert (darkest[1] > darkest[0]) == right
            assert darkest.sum() < 500, "something stands there, a dash where nothing was read"


def test_the_evaluation_says_what_a_reader_read_in_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from groupwise_images.restoration import word_reader

    monkeypatch.setattr(word_reader.Tesseract, "is_installed", lambda: True)
    monkeypatch.setattr(
        word_reader.Tesseract,
        "__call__",
        lambda self, pictures: ["dark" if page.mean() < 99 else "" for page in pictures],
    )
    reader = {"kind": "callable", "path": "groupwise_images.restoration.word_reader:Reading"}
    opened = domain(
        {
            "source": {"kind": "words", "num_train": 4, "num_held_out": 8},
            "rewards": {"read": reader},
            "evaluation": {"num_columns": 3, "num_images": 8},
        }
    )
    evaluation = opened.evaluate(streams=Streams(0))
    assert evaluation.pictures["images"].shape[2] == 3, "captions are in colour"
    table = opened.rewards.score([""] * 2, [torch.zeros(16, 64)] * 2, {"text": ["dark", "word"]})
    assert table.extras == {"read by tesseract": ["dark", "dark"]}
    assert table.values["read"] == [1.0, 0.25]


def test_answers_are_read_of_every_image_that_is_drawn_where_sizes_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    from groupwise_images.restoration import word_reader

    monkeypatch.setattr(word_reader.Tesseract, "is_installed", lambda: True)
    monkeypatch.setattr(word_reader.Tesseract, "__call__", lambda self, pictures: ["dark"] * len(pictures))
    opened = domain(
        {
            "source": {"kind": "words", "num_train": 4, "num_held_out": 8},
            "rewards": {"read": {"kind": "callable", "path": "groupwise_images.restoration.word_reader:Reading"}},
            "evaluation": {"num_columns": 3, "num_images": 8},
        }
    )
    # The second and the third are no column of the picture, so that the last column is the fifth image.
    for place in (1, 2):
        picture = opened._held_out[place]
        opened._held_out[place] = replace(picture, clean=np.concatenate([picture.clean] * 2, axis=1))
    assert opened.evaluate(streams=Streams(0)).pictures["images"].shape[2] == 3


def test_decibels_are_reported_beside_a_reward_on_another_scale() -> None:
    assert fidelity_names({"read": None}) == {"psnr": "psnr", "ssim": "ssim"}
    assert fidelity_names({"psnr": Psnr(scale=2.0), "ssim": None}) == {"psnr": "psnr_db"}
    given = domain({"rewards": {"psnr": {"kind": "psnr", "scale": 0.025}}})
    found = given.evaluate(streams=Streams(0)).metrics
    assert (
        set(found)
        == set(given.metric_names)
        == {"restored/reward", "restored/bright", "restored/psnr", "restored/psnr_db", "restored/ssim"}
    )
    # The reward sees 8 bits.
    assert found["restored/psnr_db"] == pytest.approx(found["restored/psnr"] / 0.025, rel=1e-3)
