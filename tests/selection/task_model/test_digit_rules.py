"""The task model of the digit-rule questions: what it reads, that it learns in context, that it is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from groupwise_selection.source.digit_rules import DIMENSIONS, DigitRules, digit_images
from groupwise_selection.task_model import digit_rules as subject
from groupwise_selection.task_model.config import DigitRules as Config

SMALL = Config(width=16, num_layers=1, num_heads=2, num_steps=0, cache=False)


def test_probabilities_sum_to_one_and_do_not_depend_on_the_batch() -> None:
    model = subject.open_model(SMALL)
    questions = DigitRules(num_rules=26, num_train=3, num_validation=1, num_held_out=1, pool_size=4, bank_size=8).read()
    queries = questions.train
    found = model.score(queries, [query.pool[:2] for query in queries], [("yes", "no")] * 3)
    assert np.exp(found).sum(1) == pytest.approx(1.0)
    (alone,) = model.score(queries[1:2], [queries[1].pool[:2]], [("no", "yes", "maybe")])
    assert alone[:2] == pytest.approx(found[1][::-1], abs=1e-6)
    assert alone[2] == float("-inf")
    assert model.generate(queries, [query.pool[:2] for query in queries]) == [
        "yes" if yes >= no else "no" for yes, no in found
    ]


def test_the_task_model_reads_images_and_answers_but_no_question() -> None:
    model = subject.open_model(SMALL)
    query = (
        DigitRules(num_rules=26, num_train=1, num_validation=1, num_held_out=1, pool_size=4, bank_size=8)
        .read()
        .train[0]
    )
    demos = query.pool[:2]
    other_answer = {"yes": "no", "no": "yes"}
    renamed = [replace(each, question="another question?") for each in demos]
    flipped = [replace(each, answer=other_answer[each.answer]) for each in renamed]
    plain, same, other = (model.score([query], [shown], [("yes",)])[0][0] for shown in (demos, renamed, flipped))
    assert plain == same != other


def test_episodes_follow_a_rule() -> None:
    components = digit_images("train")[1]
    images, labels, target = subject.episodes(components, 200, 4, np.random.default_rng(0))
    assert images.shape == (200, 5, DIMENSIONS)
    assert labels.shape == (200, 4)
    # Where all four demonstrations agree and point the way of the query, so does most often the answer.
    likeness = torch.nn.functional.cosine_similarity(images[:, :4], images[:, 4:], dim=2)
    agree = (labels == target[:, None])[likeness > 0.95]
    assert agree.float().mean() > 0.7
    assert 0.4 < labels.float().mean() < 0.6


def test_a_trained_model_is_read_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    config = SMALL.model_copy(update={"cache": True, "num_steps": 3})
    first = subject.open_model(config)
    assert subject.open_model(SMALL).fingerprint() != first.fingerprint()
    monkeypatch.setattr(subject, "train", lambda *_: pytest.fail("it is trained once"))
    assert subject.open_model(config).fingerprint() == first.fingerprint()


@pytest.mark.slow
def test_the_task_model_learns_in_context() -> None:
    model = subject.open_model(Config(cache=False, num_steps=400))
    components = digit_images("held_out")[1]
    images, labels, target = subject.episodes(components, 2000, 4, np.random.default_rng(1))
    with torch.no_grad():
        right = (model.learner(images, labels).argmax(1) == target).float().mean()
        alone = (model.learner(images[:, -1:], labels[:, :0]).argmax(1) == target).float().mean()
    assert right > 0.7
    assert alone < 0.55
