"""Sources give distinct rows in a fixed order, and the demonstrations that they promise."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from groupwise.config import ConfigError
from groupwise.domain.language.environment import GuessTheNumber
from groupwise.domain.language.source import base as module
from groupwise.domain.language.source.base import Files, Hub, ReasoningGym, Row, distinct, kept_rows
from groupwise.domain.language.source.toys import Cups, HiddenNumber, Sorting, Tales, follow, patient, worked
from groupwise.reward.texts.reasoning_gym import ReasoningGym as Score


def test_repeats_are_skipped_and_an_exhausted_task_ends():
    rows = ({"prompt": str(number % 3)} for number in itertools.count())
    assert [row["prompt"] for row in distinct(rows, lambda row: row["prompt"], 5)] == ["0", "1", "2"]
    assert distinct(iter([{"prompt": "a"}, {"prompt": "b"}]), lambda row: row["prompt"], None) == [
        {"prompt": "a"},
        {"prompt": "b"},
    ]


# Cups.


def test_rows_agree_with_their_own_prompt():
    for row in Cups(num_cups=5, num_swaps=6).rows(50, seed=3):
        words = row["prompt"].split()
        swaps = [tuple(map(int, word.split("-"))) for word in words[3:-1]]
        assert [str(place) for place in (int(words[1]), *follow(int(words[1]), swaps))] == row["steps"]
        assert row["answer"] == row["steps"][-1]
        assert all(a != b for a, b in swaps)


def test_rows_are_distinct_and_a_function_of_the_seed():
    rows = Cups().rows(500, seed=1)
    assert len({row["prompt"] for row in rows}) == 500
    assert rows[:20] == Cups().rows(20, seed=1)
    assert rows[:20] != Cups().rows(20, seed=2)


def test_demonstrations_are_right_and_mixed_as_asked():
    source = Cups(worked_share=0.3)
    rows = source.rows(2000, seed=0)
    texts = [source.demonstration(row, seed=0)[0] for row in rows]
    assert all(text.split()[-2:] == ["answer", row["answer"]] for text, row in zip(texts, rows, strict=True))
    with_work = worked(texts, [row["steps"] for row in rows])
    # Five standard errors of a share of .3 over 2000 are .051.
    assert abs(sum(with_work) / 2000 - 0.3) < 0.051
    assert all(
        text == f"answer {row['answer']}" for text, row, done in zip(texts, rows, with_work, strict=True) if not done
    )


def test_every_step_of_a_worked_text_starts_from_the_word_before() -> None:
    # The model that has to look for the ball's start in the prompt at the first step alone fails there with some seeds.
    source = Cups(worked_share=1.0)
    for row in source.rows(200, seed=2):
        words = row["prompt"].split()
        ball, *places = source.demonstration(row, seed=0)[0].split()[:-2]
        assert ball == words[1]
        for before, place, swap in zip([ball, *places], places, words[3:-1], strict=False):
            assert place == str(follow(int(before), [tuple(map(int, swap.split("-")))])[0])


def test_the_judge_asks_for_every_step():
    steps = [["3", "2", "2"]] * 5
    assert worked(["3 2 2 answer 2", "answer 2", "3 2 answer 2", "3 2 2 answer 3", "3 1 2 answer 2"], steps) == [
        1,
        0,
        0,
        0,
        0,
    ]


# Files.


ROWS = [{"prompt": f"{number} + 1 =", "answer": str(number + 1)} for number in range(6)]


def test_jsonl_json_and_parquet_hold_the_same_rows(tmp_path):
    import pyarrow
    import pyarrow.parquet

    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n")
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    for ending in ("jsonl", "json", "parquet"):
        assert Files(paths=(str(tmp_path / f"a.{ending}"),), shuffle=False).rows(None, seed=0) == ROWS


# Hidden number.


def test_demonstrations_are_games_the_environment_would_play():
    source = HiddenNumber(num_guesses=4, careless_share=0.0)
    found = 0
    for row in source.rows(200, seed=0):
        turns = source.demonstration(row, seed=0)
        game = GuessTheNumber(num_guesses=4).open()
        game.reset(row)
        for number, guess in enumerate(turns[::2]):
            step = game.step(guess)
            if not step.done:
                assert turns[2 * number + 1] == step.text
        assert step.done
        found += step.reward == 1.0
        assert len(turns[::2]) <= 4
        messages = [
            {"role": "assistant" if place % 2 == 0 else "user", "content": text} for place, text in enumerate(turns)
        ]
        assert patient([messages], [row["low"]], [row["high"]], [row["secret"]]) == [1.0]
    # Guessing anything still possible finds the number sometimes, not always: that is what is left to learn.
    assert 40 < found < 160


def test_a_careless_player_wins_less_often_and_its_share_is_as_asked():
    rows = HiddenNumber().rows(300, seed=0)
    won = {}
    for share in (0.0, 0.4, 1.0):
        games = [HiddenNumber(careless_share=share).demonstration(row, seed=0) for row in rows]
        won[share] = sum(int(game[-1]) == row["secret"] for game, row in zip(games, rows, strict=True))
    assert won[0.0] > won[0.4] > won[1.0]
    # Four careless guesses at one of 16 numbers find it in about 1 - (15/16)^4 = .23 of the games; five standard errors
    # are .12.
    assert abs(won[1.0] / 300 - 0.23) < 0.12


# Hub.


def test_a_local_folder_is_loaded_by_its_splits(tmp_path, monkeypatch):
    for part, numbers in (("train", range(5)), ("test", range(9, 11))):
        (tmp_path / f"{part}.jsonl").write_text(
            "\n".join(json.dumps({"prompt": f"{n} ?", "answer": str(n)}) for n in numbers)
        )
    source = Hub(id=str(tmp_path), held_out_split="test")
    assert sorted(row["answer"] for row in source.rows(None, seed=0)) == ["0", "1", "2", "3", "4"]
    assert sorted(row["answer"] for row in source.held_out_rows(10, seed=0)) == ["10", "9"]
    assert source.rows(3, seed=0) == source.rows(None, seed=0)[:3]
    with pytest.raises(ConfigError, match=r"datasets cannot load .*split 'dev'"):
        Hub(id=str(tmp_path), split="dev").rows(None, seed=0)


# Rows that were made once are not made again, in this process or the next, and are the same rows.


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, for which every row is worth keeping."""
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "WORTH_SECONDS", -1.0)
    return tmp_path / "rows"


def entries(size: int = 50) -> Iterator[Row]:
    """An endless list with repeats."""
    return ({"prompt": str(place * place % size)} for place in count())


def made(name: str, num: int | None, drawn: Iterator[Row]) -> list[Row]:
    return kept_rows({"list": name}, drawn, lambda row: row["prompt"], num, what="")


@pytest.mark.parametrize("num", [5, None])
def test_rows_are_those_of_one_draw_and_are_made_once(num: int | None) -> None:
    expected = distinct(entries(), lambda row: row["prompt"], num)
    assert made("a", num, entries()) == expected
    assert made("a", num, iter(())) == expected
    assert made("b", num, iter(())) == [], "other inputs are another list"


def test_a_damaged_file_is_made_again(cache: Path) -> None:
    rows = made("a", 9, entries())
    (file,) = cache.iterdir()
    for damaged in (file.read_text()[:-9], "", "\0"):
        file.write_text(damaged)
        assert made("a", 9, entries()) == rows
        assert json.loads(file.read_text()) == rows


@pytest.mark.parametrize("task", ["countdown", "knights_knaves", "basic_arithmetic", "spell_backward"])
def test_kept_puzzles_are_those_that_the_library_makes(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ReasoningGym(task=task)
    fresh = distinct(source._entries(3), source.identity, 12)
    assert source.rows(12, 3) == fresh
    monkeypatch.setattr(ReasoningGym, "_entries", lambda *_: iter(()))
    assert json.dumps(source.rows(12, 3)) == json.dumps(fresh), "the order of the columns too"


# Reasoning gym.


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


# Sorting.


def test_answers_are_sorted_and_wrong_demonstrations_are_reversed():
    source = Sorting(wrong_share=1.0)
    for row in source.rows(20, seed=0):
        digits = row["prompt"].removeprefix("sort ").removesuffix(" ?").split()
        assert row["answer"].split() == sorted(digits)
        assert source.demonstration(row, seed=0) == [" ".join(sorted(digits, reverse=True))]
        assert Sorting(wrong_share=0.0).demonstration(row, seed=0) == [row["answer"]]


# Tales.


def test_clauses_and_connectives_as_asked():
    source = Tales(min_clauses=3, max_clauses=3, joined_share=1.0)
    for row in source.rows(20, seed=0):
        clauses = source.demonstration(row, seed=0)[0].removesuffix(" .").split(" . ")
        assert len(clauses) == 3
        assert clauses[0].startswith(row["who"])
        assert all(clause.split()[0] in source.connectives for clause in clauses[1:])
    assert all(word not in Tales(joined_share=0.0).demonstration(row, seed=0)[0].split() for word in source.connectives)


# Texts.
