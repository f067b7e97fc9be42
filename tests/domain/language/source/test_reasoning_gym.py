from __future__ import annotations

import itertools
import json

import pytest

from groupwise.config import ConfigError
from groupwise.domain.language.source.base import ReasoningGym
from groupwise.reward.texts.reasoning_gym import ReasoningGym as Score


@pytest.mark.parametrize(
    ("task", "parameters"), [("countdown", {"min_numbers": 3, "max_numbers": 3}), ("knights_knaves", {"n_people": 2})]
)
def test_rows_survive_json_and_score_their_own_answer(task, parameters):
    rows = ReasoningGym(task=task, parameters=parameters).rows(5, seed=0)
    rows = json.loads(json.dumps(rows))
    assert len({row["prompt"] for row in rows}) == 5
    values = Score()(
        [row["prompt"] for row in rows],
        [row["answer"] for row in rows],
        answer=[row["answer"] for row in rows],
        metadata=[row["metadata"] for row in rows],
    )
    assert values == [1.0] * 5


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(ConfigError, match=r"'countdwn'.*did you mean countdown\?"):
        ReasoningGym(task="countdwn").rows(1, seed=0)


def test_parameters_the_task_refuses_are_a_clear_error():
    with pytest.raises(
        ConfigError,
        match=r"data.source.parameters = \{'people': 2\} is refused by reasoning-gym's task 'knights_knaves'",
    ):
        ReasoningGym(task="knights_knaves", parameters={"people": 2}).rows(1, seed=0)


@pytest.mark.parametrize(
    "parameters",
    [
        {"symbols": ["x", "__import__('os').system('touch PWNED')"]},
        {"a": {"b": ["f()"]}},
        {"x[0]": 1},
        {"a": '"'},
        {"a": "f'{x}'"},
        {"a": "`"},
    ],
)
def test_a_parameter_that_could_be_evaluated_is_refused(parameters):
    with pytest.raises(ValueError, match="could be evaluated as code by reasoning-gym"):
        ReasoningGym(task="simple_integration", parameters=parameters)


def test_signs_and_words_are_parameters():
    assert ReasoningGym(task="basic_arithmetic", parameters={"operators": ["+", "-", "*"], "max_terms": 3}).rows(
        1, seed=0
    )


def test_making_puzzles_for_long_is_said_once(monkeypatch, caplog):
    clock = itertools.count(0.0, 3.0)
    monkeypatch.setattr("groupwise.domain.language.source.base.perf_counter", lambda: next(clock))
    with caplog.at_level("WARNING", logger="groupwise"):
        rows = ReasoningGym(task="countdown").rows(10, seed=2611)
    assert len(rows) == 10
    assert [record.getMessage() for record in caplog.records] == [
        "reasoning-gym makes puzzles of countdown, which are kept for the next run: 2 of 10; about 24 s more"
    ]
