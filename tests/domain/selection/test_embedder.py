"""Hashed words: cosines that can be counted."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise.domain.selection.embedder import HashedWords


def test_the_cosine_is_the_share_of_common_words():
    vectors = HashedWords(size=4096)(["refund north atlas gold", "Refund, NORTH! beacon gold", "a a b", "login"])
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert float(vectors[0] @ vectors[1]) == pytest.approx(3 / 4, abs=1e-6)
    assert sorted(np.abs(vectors[2][vectors[2] != 0]).round(4).tolist()) == pytest.approx(
        [1 / 5**0.5, 2 / 5**0.5], abs=1e-3
    )
    assert float(vectors[0] @ vectors[3]) == 0


def test_a_text_without_words_is_a_unit_vector_too():
    assert HashedWords(size=8)(["", " !"]).tolist() == [[1.0] + [0.0] * 7] * 2


def test_the_same_vectors_on_every_machine():
    vector = HashedWords(size=16)(["refund north"])[0]
    assert np.flatnonzero(vector).tolist() == [10, 12]
