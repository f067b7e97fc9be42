from __future__ import annotations

import json

import pytest

from groupwise.config import ConfigError
from groupwise.domain.language.source.reasoning_gym import ReasoningGym
from groupwise.reward.reasoning_gym import ReasoningGym as Score


@pytest.mark.parametrize(("task", "parameters"), [("countdown", {"min_numbers": 3, "max_numbers": 3}), ("knights_knaves", {"n_people": 2})])
def test_rows_survive_json_and_score_their_own_answer(task, parameters):
    rows = ReasoningGym(task=task, parameters=parameters).rows(5, seed=0)
    rows = json.loads(json.dumps(rows))
    assert len({row["prompt"] for row in rows}) == 5
    values = Score()(
        [row["prompt"] for row in rows], [row["answer"] for row in rows], answer=[row["answer"] for row in rows], metadata=[row["metadata"] for row in rows]
    )
    assert values == [1.0] * 5


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(ConfigError, match=r"'countdwn'.*did you mean countdown\?"):
        ReasoningGym(task="countdwn").rows(1, seed=0)


def test_parameters_the_task_refuses_are_a_clear_error():
    with pytest.raises(ConfigError, match=r"data.source.parameters = \{'people': 2\} is refused by reasoning-gym's task 'knights_knaves'"):
        ReasoningGym(task="knights_knaves", parameters={"people": 2}).rows(1, seed=0)
