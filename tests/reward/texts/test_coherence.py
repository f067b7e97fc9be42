"""Source 003's coherence reward."""

from __future__ import annotations

import pytest

from groupwise.reward import Coherence


def test_each_connective_counts_once() -> None:
    texts = ["无", "因为A，因为B", "因为A，所以B", "因为A，所以B。然而C，但是D"]
    assert Coherence()([""] * 4, texts) == pytest.approx([0.0, 0.2, 0.4, 0.8])


def test_at_most_one() -> None:
    reward = Coherence(connectives=("a", "b", "c", "d", "e", "f"))
    assert reward([""] * 2, ["abcde", "abcdef"]) == pytest.approx([1.0, 1.0])


def test_connectives_of_another_language() -> None:
    assert Coherence(connectives=("because",), each=0.5)([""], ["because"]) == [0.5]
