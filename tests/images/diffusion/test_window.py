from __future__ import annotations

import pytest

from groupwise_images.diffusion.model import Window


def test_a_random_window_reaches_every_place_and_no_other() -> None:
    window = Window(size=2, place="random")
    starts = {window.start(0, 6, draw / 100) for draw in range(100)}
    assert starts == {0, 1, 2, 3}, "transitions 0 to 4 can be trained, the last (5) never"


def test_a_range_confines_it() -> None:
    window = Window(size=2, low=1, high=4, place="random")
    assert {window.start(0, 10, draw / 100) for draw in range(100)} == {1, 2}


def test_a_progressive_window_strides_and_begins_again() -> None:
    window = Window(size=2, place="progressive", stride=2, shift_every=3)
    assert [window.start(step, 7, 0.9) for step in range(0, 12, 3)] == [0, 2, 4, 0]


def test_a_fixed_window_stays() -> None:
    assert {Window(size=1, low=2, place="fixed").start(step, 6, 0.7) for step in range(50)} == {2}


@pytest.mark.parametrize(
    ("window", "said"),
    [({"size": 6}, "fit into the 5"), ({"size": 1, "high": 6}, "never trained"), ({"size": 2, "low": 4}, "fit")],
)
def test_a_window_that_does_not_fit_is_refused(window: dict[str, int], said: str) -> None:
    assert said in Window(**window).problem(6)
    assert Window(size=5).problem(6) == ""
