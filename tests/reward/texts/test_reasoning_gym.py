"""Scores by the tasks' own rules."""

from __future__ import annotations

import json

import pytest
import reasoning_gym

from groupwise.reward import Extract, ReasoningGym, RewardError, Rewards, score


def test_the_tasks_own_score_after_a_round_trip_through_json() -> None:
    data = reasoning_gym.create_dataset("countdown", size=4, seed=1)
    entries = [json.loads(json.dumps(entry, default=str)) for entry in data]
    columns = {name: [entry[name] for entry in entries] for name in ("question", "answer", "metadata")}
    reward = ReasoningGym(extract=Extract(tag="answer"))
    right = [f"<answer>{entry['metadata']['expression']}</answer>" for entry in entries]
    assert reward([""] * 4, right, **columns) == [1.0] * 4
    wrong = reward([""] * 4, ["<answer>1</answer>"] * 4, **columns)
    assert wrong == [data.score_answer("1", entry) for entry in entries]
    assert max(wrong) < 0.1
    assert reward([""] * 4, ["nothing"] * 4, **columns) == [data.score_answer(None, entry) for entry in entries]


def test_an_unknown_task_is_refused_when_opened() -> None:
    with pytest.raises(RewardError, match="reward 'gym': reasoning_gym cannot score the task 'count_down'"):
        Rewards({"gym": ReasoningGym(task="count_down")})


def test_metadata_that_name_no_task() -> None:
    with pytest.raises(RewardError, match="does not name its task in source_dataset"):
        score({"gym": ReasoningGym()}, ["?"], ["4"], {"answer": ["4"], "metadata": [{}]})
