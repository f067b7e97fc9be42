"""Features of answers."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise_selection.policy.answer_features import answer_features


def test_equal_answers_have_equal_features_and_others_differ() -> None:
    assert (answer_features("Two dogs", 32) == answer_features(" two dogs ", 32)).all()
    assert float(answer_features("yes", 32) @ answer_features("no", 32)) < 0.9
    assert np.isclose(np.linalg.norm(answer_features("never seen before", 32)), 1)


def test_answer_features_are_the_same_in_every_process() -> None:
    # blake2b of the n-grams, not Python's salted hash.
    assert answer_features("yes", 4).round(3).tolist() == EXPECTED


EXPECTED = pytest.approx([0.236, -0.236, 0.0, 0.943])
