"""Hashed words: cosines that can be counted."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise_selection.embedder import HashedWords, answer_features, words_of


def test_the_cosine_is_the_share_of_common_words():
    vectors = HashedWords(size=4096)(["refund north atlas gold", "Refund, NORTH! beacon gold", "a a b", "login"])
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert float(vectors[0] @ vectors[1]) == pytest.approx(3 / 4, abs=1e-6)
    assert sorted(np.abs(vectors[2][vectors[2] != 0]).round(4).tolist()) == pytest.approx(
        [1 / 5**0.5, 2 / 5**0.5], abs=1e-3
    )
    assert float(vectors[0] @ vectors[3]) == 0


@pytest.mark.parametrize(
    ("asked", "near", "far"),
    [
        ("这只猫在哪里", "那只猫在哪里", "香蕉多少钱"),
        ("この猫はどこですか", "その猫はどこ", "りんごを買う"),
        ("แมวอยู่ที่ไหน", "แมวตัวนี้อยู่ไหน", "ราคากล้วย"),
        ("猫", "这只猫", "香蕉"),
        ("iPhone手机", "手机 iPhone", "电脑"),
    ],
    ids=["Chinese", "Japanese", "Thai", "one character", "mixed"],
)
def test_scripts_without_spaces_have_words(asked: str, near: str, far: str):
    one, other, third = HashedWords(size=4096)([asked, near, far])
    assert float(one @ other) > 0.3
    assert float(one @ third) < 0.1


def test_vowels_that_are_marks_belong_to_their_word():
    assert words_of("हिन्दी, पानी") == ["हिन्दी", "पानी"]
    # A mark of Thai stands with its consonant, not by itself.
    assert words_of("ที่นี่") == ["ที่", "นี่", "ที่นี่"]


def test_an_accent_has_one_spelling():
    vectors = HashedWords()(["caf\u00e9 bill", "cafe\u0301 bill", "cafe bill"])
    assert vectors[0].tolist() == vectors[1].tolist() != vectors[2].tolist()
    assert (answer_features("caf\u00e9", 16) == answer_features("cafe\u0301", 16)).all()


def test_words_that_cancel_each_other_are_no_text_without_words():
    """Among eight places two words soon meet with opposite signs."""
    words = [f"w{number}" for number in range(40)]
    vectors = HashedWords(size=8)(words)
    first = next(n for n in range(40) if (vectors[n] == -vectors[0]).all() and vectors[0, 0] == 0)
    cancelled = HashedWords(size=8)([f"{words[0]} {words[first]}"])[0]
    assert cancelled.tolist() == np.abs(vectors[0]).tolist()


def test_the_same_vectors_on_every_machine():
    vector = HashedWords(size=16)(["refund north"])[0]
    assert np.flatnonzero(vector).tolist() == [10, 12]


def test_equal_answers_have_equal_features_and_others_differ() -> None:
    assert (answer_features("Two dogs", 32) == answer_features(" two dogs ", 32)).all()
    assert float(answer_features("yes", 32) @ answer_features("no", 32)) < 0.9
    assert np.isclose(np.linalg.norm(answer_features("never seen before", 32)), 1)
