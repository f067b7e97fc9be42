"""Rewards of texts: the place of an answer, shapes, lengths, and values worked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import reasoning_gym

from groupwise.config import ConfigError, validate
from groupwise.reward import (
    Coherence,
    ExactAnswer,
    Extract,
    Format,
    KnightsAndKnaves,
    Length,
    ReasoningGym,
    Repetition,
    RewardError,
    SoftOverlong,
    score,
)
from groupwise.reward.texts.reasoning_gym import _is_formula, _is_literal


@pytest.mark.parametrize(
    ("extract", "text", "answer"),
    [
        (Extract(), "  all of it \n", "all of it"),
        (Extract(tag="answer"), "<answer>1</answer><answer>2\n3</answer>", "2\n3"),
        (Extract(tag="answer"), "<answer>1<answer>2</answer>", "2"),
        (Extract(tag="answer"), "<answer>1", None),
        (Extract(after="Answer:"), "Answer: 1\nAnswer: 2 \nthank you", "2"),
        (Extract(after="Answer:"), "Answer:", ""),
        (Extract(after="Answer:"), "2", None),
        (Extract(pattern=r"\d+"), "1 and 22", "22"),
        (Extract(pattern=r"x=(\d+)|none"), "x=1 none", ""),
        (Extract(pattern=r"\d+"), "one", None),
    ],
)
def test_finds_the_last_place(extract: Extract, text: str, answer: str | None) -> None:
    assert extract(text) == answer


@pytest.mark.parametrize(
    ("kind", "tree", "message"),
    [
        (Extract, {"tag": "a", "pattern": "b"}, "tag and pattern are different ways"),
        (Extract, {"pattern": "("}, r"'\(' is no regular expression"),
        (Format, {"tags": ["a"], "pattern": "b"}, "two ways to state one shape"),
        (Format, {"tags": []}, "different names, at least one"),
        (Format, {"tags": ["a", "a"]}, "different names, at least one"),
        (Format, {"pattern": "["}, "no regular expression"),
        (SoftOverlong, {"max_length": 4, "cache_length": 5}, "cache_length = 5 is longer than max_length = 4"),
    ],
)
def test_contradictions_are_refused(kind: Any, tree: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(kind, tree)


# The shape of a completion.


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("<think>a\nb</think>\n<answer>c</answer>\n", True),
        ("<think></think><answer></answer>", True),
        ("so <think>a</think><answer>b</answer>", False),
        ("<think>a</think> and <answer>b</answer>", False),
        ("<think>a</think><answer>b</answer> done", False),
        ("<think>a</think><answer>b</answer><answer>c</answer>", False),
        ("<answer>b</answer><think>a</think>", False),
        ("<think>a<answer>b</answer></think>", False),
        ("<think>a</think>", False),
        ("", False),
    ],
)
def test_tags_once_each_in_order(text: str, fits: bool) -> None:
    assert Format(correct=1.0, wrong=-1.0)([""], [text]) == [1.0 if fits else -1.0]


# Lengths, and what each costs by DAPO's equation 13 (arXiv 2503.14476) with the paper's L_max 20480 and L_cache 4096:
# free up to 16384, then (16384 - L) / 4096, then -1.
LENGTHS = {"num_tokens": [0, 16384, 16385, 18432, 20480, 20481]}
COSTS = [0.0, 0.0, -1 / 4096, -0.5, -1.0, -1.0]
ANY = Coherence(connectives=tuple("abcdef"))
CHARACTERS = Repetition(size=1, unit="characters")
SHORT = SoftOverlong(max_length=4, cache_length=2, column="completion_ids")
GOLD = "Zoey is a knight, and Avery is a knave."
VALUES: list[tuple[Any, list[str], dict[str, list[Any]], list[float | None]]] = [
    (Format(tags=("think",), prefilled="<think>"), ["a</think>", "<think>a</think>"], {}, [1.0, 0.0]),
    (Format(pattern="a.b"), ["a\nb", "aab", "a b!"], {}, [1.0, 1.0, 0.0]),
    (ExactAnswer(), [" New\n York ", "nyc", "Boston", ""], {"answer": [["New York", "NYC"]] * 4}, [1.0, 1.0, 0.0, 0.0]),
    (ExactAnswer(ignore_case=False, wrong=-1.0), ["Ab", "ab"], {"answer": ["ab", "ab"]}, [-1.0, 1.0]),
    # An answer that is not found is wrong also where the empty text is expected.
    (ExactAnswer(extract=Extract(tag="a")), ["", "<a></a>"], {"answer": ["", ""]}, [0.0, 1.0]),
    (ExactAnswer(column="solution"), ["12"], {"solution": [12], "answer": ["x"]}, [1.0]),
    (ExactAnswer(), ["None", "x", "4"], {"answer": [None, None, 4]}, [None, None, 1.0]),
    # Source 003: each connective counts once, and all together at most 1.
    (Coherence(), ["无", "因为A，因为B", "因为A，所以B", "因为A，所以B。然而C，但是D"], {}, [0.0, 0.2, 0.4, 0.8]),
    (ANY, ["abcde", "abcdef"], {}, [1.0, 1.0]),
    (Coherence(connectives=("because",), each=0.5), ["because"], {}, [0.5]),
    # Source 003: 1 - |40 - 50| / 50, 1 - 0, 1 - |75 - 50| / 50, and 0 from a hundred words on.
    (Length(), ["w " * count for count in (40, 50, 75, 100, 130)], {}, [0.8, 1.0, 0.5, 0.0, 0.0]),
    (Length(target=4, unit="characters"), ["你好世界", "你好"], {}, [1.0, 0.5]),
    (Length(target=4), ["你好世界"], {}, [0.25]),
    # "a b c a b c": four trigrams, three of them different: -(1 - 3/4).
    (Repetition(), ["a b c a b c", "a b c d", "A B C a b c", "", "a a"], {}, [-0.25, 0.0, -0.25, 0.0, 0.0]),
    (Repetition(size=1, penalty=2.0), ["no " * 100], {}, [-1.98]),
    (CHARACTERS, ["好好 学"], {}, [-1 / 3]),
    (SoftOverlong(max_length=20480), [""] * 6, LENGTHS, COSTS),
    (SoftOverlong(), [""] * 6, LENGTHS | {"max_new_tokens": [20480] * 6}, COSTS),
    (SoftOverlong(), [""] * 2, {"num_tokens": [9, 5], "max_new_tokens": [10, 5]}, [-0.5, -1.0]),
    (SHORT, ["x"] * 2, {"completion_ids": [[5, 6, 7], [5]]}, [-0.5, 0.0]),
    (SoftOverlong(max_length=4, cache_length=2, column=None), ["a b c"], {}, [-0.5]),
    (KnightsAndKnaves(prefilled="<think>"), [f"hm</think><answer>{GOLD}</answer>"], {"answer": [GOLD]}, [3.0]),
]


@pytest.mark.parametrize(("reward", "texts", "columns", "expected"), VALUES)
def test_values_worked_by_hand(
    reward: Any, texts: list[str], columns: dict[str, list[Any]], expected: list[float | None]
) -> None:
    assert reward([""] * len(texts), texts, **columns) == pytest.approx(expected)


# Format and answer of Knights and Knaves, also on puzzles as reasoning-gym makes them.


def wrapped(answer: str) -> str:
    return f"<think>hm</think>\n<answer>{answer}</answer>"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (wrapped("(1) Zoey is a knight\n(2) Avery is a knave"), 3.0),
        (wrapped("avery: Knave, zoey: KNIGHT"), 3.0),
        (wrapped("Zoey is a knave, and Avery is a knave."), -0.5),
        (wrapped("Zoey is a knight"), -1.0),
        (wrapped("Zoey is a knight/knave, and Avery is a knight/knave"), -1.0),
        (wrapped("Zoey is a knight. Zoey is a knave. Avery is a knave."), -1.0),
        (wrapped("Zoey is not a knight. Avery is a knave."), -1.0),
        (wrapped("Zoey is a knight, not a knave. Avery is a knave."), -1.0),
        (wrapped("Zoey is a knight. Zoey is a knight. Avery is a knave."), -1.0),
        (wrapped("Zoey is a knight, Avery is a knave, and Bob is a knight."), -1.0),
        (wrapped(""), -1.0),
        (GOLD, -3.0),
        ("<answer>" + GOLD + "</answer>", -3.0),
        (wrapped(GOLD) + wrapped(GOLD), -3.0),
    ],
)
def test_format_one_answer_two(text: str, value: float) -> None:
    assert KnightsAndKnaves()([""], [text], answer=[GOLD]) == [value]


def test_every_puzzle_of_reasoning_gym_can_be_answered_right_and_wrong() -> None:
    puzzles = list(reasoning_gym.create_dataset("knights_knaves", size=30, seed=0, n_people=3))
    gold = [puzzle["answer"] for puzzle in puzzles]
    assert KnightsAndKnaves()([""] * 30, [wrapped(answer) for answer in gold], answer=gold) == [3.0] * 30
    swapped = []
    for puzzle in puzzles:
        terms = puzzle["metadata"]["knight_knave_terms"]
        swap = {str(terms["knight"]): str(terms["knave"]), str(terms["knave"]): str(terms["knight"])}
        swapped.append(" ".join(swap.get(word.strip(",."), word) for word in puzzle["answer"].split()))
    assert KnightsAndKnaves()([""] * 30, [wrapped(answer) for answer in swapped], answer=gold) == [-0.5] * 30


# Scores by the tasks' own rules.


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
    with pytest.raises(RewardError, match="reasoning_gym cannot score the task 'count_down'"):
        ReasoningGym(task="count_down").open()


def test_metadata_that_name_no_task() -> None:
    with pytest.raises(ValueError, match="does not name its task in source_dataset"):
        ReasoningGym()(["?"], ["4"], answer=["4"], metadata=[{}])


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
