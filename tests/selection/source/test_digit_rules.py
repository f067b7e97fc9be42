"""Digit-rule questions: splits that share nothing they should not, pools that vary, embeddings that keep the rule to
themselves.
"""

from __future__ import annotations

import numpy as np
import pytest

from groupwise.config import ConfigError, validate
from groupwise_selection.example import Questions
from groupwise_selection.source.base import check, distinct_pools
from groupwise_selection.source.digit_rules import DigitRules


@pytest.fixture(scope="module")
def questions() -> Questions:
    return DigitRules(num_rules=52, num_train=120, num_validation=30, num_held_out=120).read()


def test_the_data_are_sound_and_the_same_every_time(questions: Questions) -> None:
    check(questions, 4)
    again = DigitRules(num_rules=52, num_train=120, num_validation=30, num_held_out=120).read()
    one, two = questions.held_out[7], again.held_out[7]
    assert one.answers == two.answers
    assert (one.embedding == two.embedding).all()
    assert [each.id for each in one.pool] == [each.id for each in two.pool]


def test_splits_share_neither_rules_nor_images_asked_about(questions: Questions) -> None:
    parts = (questions.train, questions.validation, questions.held_out)
    for name in ("image", "rule"):
        keys = [{query.clusters[name] for query in part} for part in parts]
        assert not keys[0] & keys[1]
        assert not keys[0] & keys[2]
        assert not keys[1] & keys[2]
    shown = {example.clusters["image"] for query in questions.held_out for example in query.pool}
    assert all(key.startswith("train-") for key in shown)


def test_half_of_each_pool_follows_the_rule_and_none_shows_the_image(questions: Questions) -> None:
    for query in (*questions.train, *questions.held_out):
        assert sum(example.question == query.question for example in query.pool) == 16
        assert len(query.pool) == 32
        assert query.clusters["image"] not in {
            example.clusters["image"] for example in query.pool if example.question == query.question
        }
    assert distinct_pools(questions.held_out)
    assert len({frozenset(example.id for example in query.pool) for query in questions.held_out}) == len(
        questions.held_out
    )


def test_similarity_is_the_weighted_mean_of_the_parts(questions: Questions) -> None:
    query = questions.train[0]
    cosines = np.array([example.embedding @ query.embedding for example in query.pool])
    same = np.array([example.question == query.question for example in query.pool])
    # Two noisy codes of one rule have the cosine 1 / (1 + .7^2) on average, and a weight of .3.
    assert cosines[same].mean() - cosines[~same].mean() == pytest.approx(0.3 / 1.49, abs=0.12)


def test_annotators_doubt_near_the_plane_only(questions: Questions) -> None:
    votes = np.array([query.answers.count("yes") for query in questions.train])
    assert set(votes.tolist()) - {0, 10}
    assert ((votes == 0) | (votes == 10)).mean() > 0.7
    assert 0.3 < (votes >= 5).mean() < 0.7


def test_settings_without_a_possible_draw_are_refused() -> None:
    with pytest.raises(ConfigError, match="bank_size = 10: half of a pool is drawn from it"):
        validate(DigitRules, {"kind": "digit_rules", "bank_size": 10})
    with pytest.raises(ConfigError, match="all 0"):
        validate(
            DigitRules, {"kind": "digit_rules", "image_weight": 0.0, "question_weight": 0.0, "nuisance_weight": 0.0}
        )
