"""Scores by the tasks' own rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import reasoning_gym

from groupwise.reward import Extract, ReasoningGym, RewardError, Rewards, score
from groupwise.reward.texts.reasoning_gym import _is_formula, _is_literal


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


def test_what_the_library_evaluates_reaches_nothing_behind_the_wall(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("255")
    reads = f"int(open({str(tmp_path / 'secret')!r}).read())"
    unshares = "__import__('ctypes').CDLL(None).unshare(0x10000000) + 255"
    metadata = [{"source_dataset": "bitwise_arithmetic", "problem": text} for text in (reads, unshares, "255")]
    columns = {"answer": ["0xff"] * 3, "metadata": metadata}
    assert score({"gym": ReasoningGym()}, ["?"] * 3, ["0xff"] * 3, columns).values["gym"] == [0.0, 0.0, 1.0]
    # In this process, without a wall, the file is read.
    assert ReasoningGym()(["?"], ["0xff"], answer=["0xff"], metadata=metadata[:1]) == [1.0]


def test_an_answer_that_reads_its_own_solution_earns_nothing() -> None:
    entry = json.loads(json.dumps(reasoning_gym.create_dataset("spiral_matrix", size=1, seed=1)[0]))
    columns = {name: [entry[name]] * 3 for name in ("question", "answer", "metadata")}
    cheats = "__import__('sys')._getframe(1).f_locals['oracle_answer'].split()"
    assert ReasoningGym()([""] * 3, [entry["answer"], str(entry["answer"].split()), cheats], **columns) == [1, 0.1, 0]


def test_formulas_and_lists_are_told_from_code() -> None:
    formulas = ["(19 - 9)*3", "x**2/2 + C", "sqrt(2)*asin(x)", "-1.5e3*pi", "Integral(x, x)"]
    lists = ["[[0, 1], ['Q', '_']]", "(1, 2)"]
    code = [
        "open('x')",
        "sin('1')",
        "x.y",
        "x[0]",
        "(lambda: 1)()",
        "exp(x=1)",
        "[x for x in y]",
        "f'{x}'",
        "sin(",
        "(" * 999,
    ]
    assert [_is_formula(text) for text in (*formulas, *lists, *code)] == [True] * 5 + [False] * (2 + len(code))
    assert [_is_literal(text) for text in (*lists, *code)] == [True] * 2 + [False] * len(code)
