"""The challenge's normalisation, on pairs written by hand from its published rules."""

from __future__ import annotations

import pytest

from groupwise_selection.reward.vqa import normalise

PAIRS = [
    # Case and articles; a word that contains one stays.
    ("The Red Bus", "red bus"),
    ("a cat and an apple", "cat and apple"),
    ("theatre", "theatre"),
    # Numbers up to ten and none.
    ("two", "2"),
    ("None", "0"),
    ("Ten men", "10 men"),
    ("eleven", "eleven"),
    ("someone", "someone"),
    # Contractions without their apostrophe, and with one of two.
    ("dont", "don't"),
    ("its", "its"),
    ("couldntve", "couldntve"),
    ("couldnt've", "couldn't've"),
    ("couldn'tve", "couldn't've"),
    ("I think theyre", "i think they're"),
    ("isn't", "isn't"),
    ("oclock", "o'clock"),
    ("yall'd've", "y'all'd've"),
    # Oddities of the published code.
    ("im", "im"),
    ("somebody'd", "somebodyd"),
    # Punctuation beside a space goes; between two letters it becomes a space.
    ("yes!", "yes"),
    ("red, blue", "red blue"),
    ("red/blue", "red blue"),
    ("t-shirt", "t shirt"),
    ("(black)", "black"),
    ("black - white", "black white"),
    # Full stops stay before a digit only; a comma between digits goes, and takes other marks with it.
    ("U.S.", "us"),
    ("3.5", "3.5"),
    ("3.", "3"),
    ("1,000", "1000"),
    ("1,000-2", "10002"),
    ("100-2", "100 2"),
    # White space.
    ("  red\n bus\t", "red bus"),
    ("the", ""),
    ("", ""),
]


@pytest.mark.parametrize(("given", "expected"), PAIRS, ids=[given or "empty" for given, _ in PAIRS])
def test_a_pair(given: str, expected: str) -> None:
    assert normalise(given) == expected


def test_words_that_are_words_without_an_apostrophe_are_left() -> None:
    assert normalise("well were shell hell ill id wed") == "well were shell hell ill id wed"
