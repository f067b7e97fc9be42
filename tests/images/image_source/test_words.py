"""The source of words on patterned paper."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pytest

from groupwise.config import ConfigError
from groupwise_images.image_source import Words
from groupwise_images.image_source.words import FONTS, HEIGHT, WIDTH, draw

FOLDER = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


@pytest.mark.slow
def test_no_held_out_word_is_trained_on_and_every_key_is_its_own() -> None:
    pictures = Words(num_train=600, num_held_out=200, copies=2).read()
    trained, held_out = ({picture.columns["text"] for picture in part} for part in (pictures.train, pictures.held_out))
    assert (len(pictures.train), len(trained), len(held_out)) == (1200, 600, 200)
    assert not trained & held_out
    assert len({picture.key for picture in (*pictures.train, *pictures.held_out)}) == 1400
    # Another number of words trained on leaves the held-out ones as they are.
    assert {picture.columns["text"] for picture in Words(num_train=10).read().held_out} == held_out


def test_a_picture_is_ink_times_paper_and_the_same_in_every_process() -> None:
    settings = {"num_train": 8, "num_held_out": 8, "copies": 1}
    papers = [Words(paper=paper, **settings).read().train for paper in (0.0, 0.6)]
    again = Words(paper=0.6, **settings).read().train
    for white, cloudy, repeated in zip(*papers, again, strict=True):
        assert np.array_equal(cloudy.clean, repeated.clean)
        ink = white.clean[0]
        assert ink[0].min() == 1, "white paper has no pattern, and no word touches the edge"
        blank = ink == 1
        assert 0.4 - 1e-6 <= cloudy.clean[0][blank].min() < 0.65
        # Where there is no ink the clean picture is the paper; where there is, it is darker by the same factor.
        assert (cloudy.clean[0] <= ink + 1e-6).all()


def test_every_font_draws_every_letter_inside_the_picture() -> None:
    for font in FONTS:
        shapes = {draw(letter, font).tobytes() for letter in "abcdefghijklmnopqrstuvwxyz"}
        assert len(shapes) == 26, font
        widest = draw("window", font)
        assert widest.shape == (HEIGHT, WIDTH)
        assert widest.min() < 0.3
        assert widest[:, :2].min() == widest[:, -2:].min() == widest[[0, -1]].min() == 1, font


def test_fonts_of_ones_own_draw_the_words_and_the_others_no_more() -> None:
    settings = {"num_train": 8, "num_held_out": 8, "copies": 2, "paper": 0.0}
    pictures = Words(fonts=(str(FOLDER / "DejaVuSerif-Bold.ttf"),), **settings).read()
    for picture in (*pictures.train, *pictures.held_out):
        assert np.array_equal(picture.clean[0], draw(picture.columns["text"], "DejaVuSerif-Bold"))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (
            str(FOLDER / "STIXSizOneSymReg.ttf"),
            r"has no a, b, .*, z, and '[a-z]+' could not be drawn; write a font with",
        ),
        (str(FOLDER / "nothing.ttf"), r"no such file; write the path of a .ttf or .otf file"),
        (__file__, r"cannot be read as a font \("),
    ],
    ids=["without letters", "missing", "no font"],
)
def test_a_font_that_cannot_draw_the_words_is_one_line(file: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"^source.fonts: '.*" + message):
        Words(fonts=(str(FOLDER / "cmr10.ttf"), file), num_train=8, num_held_out=8).read()
