"""Every check of the data names the query (or example) and the field."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.selection.handmade import example, query, unit

from groupwise.config import ConfigError
from groupwise.runs import EvaluatedOn
from groupwise_selection.example import Query, Questions, distinct
from groupwise_selection.source.base import check, distinct_pools

POOL = [example("a"), example("b", "no", 0.0, 1.0)]


def checked(*queries: Query, held_out: Query | None = None, shots: int = 2) -> None:
    check(Questions(queries, [], [held_out or query("held", POOL)]), shots)


def test_sound_data_passes() -> None:
    checked(query("q", POOL), query("r", POOL[::-1]))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pool": ()}, r"query 'q': field pool is empty"),
        ({"pool": tuple(POOL[:1])}, r"query 'q': field pool has 1 examples, and shots = 2"),
        ({"pool": (POOL[0], POOL[0])}, r"query 'q': field pool has example 'a' twice"),
        ({"pool": (POOL[0], example("q"))}, r"query 'q': field pool has the query itself"),
        ({"pool": (POOL[0], example("b"))}, r"two examples have the id 'b'"),
        ({"pool": (POOL[0], example("c", " "))}, r"example 'c' in the pool of query 'q': field answer is missing"),
        (
            {"pool": (POOL[0], replace(example("c"), embedding=unit(1, 1) * 2))},
            r"example 'c': field embedding has the length 2",
        ),
        (
            {"pool": (POOL[0], replace(example("c"), embedding=unit(1, 1, 1)))},
            r"example 'c': field embedding has the shape \[3\], others have \[2\]",
        ),
        ({"answers": ()}, r"query 'q': field answers is \[\]"),
        ({"answers": ("yes", "")}, r"query 'q': field answers is \['yes', ''\]"),
        ({"choices": ("no", "perhaps")}, r"query 'q': field choices is .* without the answer 'yes'"),
        (
            {"choices": ("no", "yes", "no")},
            r"query 'q': field choices is .*'no' and 'no' are one answer; list each once$",
        ),
        ({"choices": ("no", "yes", "yes ")}, r"'yes' and 'yes ' are one answer; list each once$"),
        ({"id": ""}, r"query 'q\?': field id is empty"),
        ({"pool": (POOL[0], example(""))}, r"example '\?': field id is empty"),
        ({"embedding": np.array([np.nan, 1.0], np.float32)}, r"query 'q': field embedding holds nan at \[0\]"),
        ({"embedding": np.array([3.0, 4.0], np.float32)}, r"query 'q': field embedding has the length 5"),
        ({"embedding": np.zeros(2, np.float32)}, r"query 'q': field embedding has the length 0"),
        ({"id": "held"}, r"query 'held': field id: two queries"),
    ],
)
def test_faulty_queries_are_refused(changes: dict[str, Any], says: str) -> None:
    held = query("held", POOL)
    with pytest.raises(ConfigError, match=says):
        checked(held_out=held, *[replace(query("q", POOL), **changes)])  # noqa: B026


def test_nothing_to_train_on_or_to_hold_out() -> None:
    with pytest.raises(ConfigError, match="no query to train on"):
        check(Questions([], [], [query("q", POOL)]), 1)
    with pytest.raises(ConfigError, match="no held-out query"):
        check(Questions([query("q", POOL)], [], []), 1)


def test_one_pool_for_all_is_seen() -> None:
    assert not distinct_pools([query("q", POOL), query("r", POOL[::-1])])
    assert distinct_pools([query("q", POOL), query("r", POOL[:1])])


def test_a_query_under_another_name_is_not_held_out() -> None:
    asked, other = query("q", POOL), query("r", POOL[::-1])
    assert Questions([asked], [], [replace(asked, id="held")]).evaluated_on == EvaluatedOn(1, 1)
    assert Questions([asked], [], [replace(asked, id="held"), other]).evaluated_on == EvaluatedOn(2, 1)
    assert Questions([asked], [], [other]).evaluated_on == EvaluatedOn(1, 0)


def test_choices_that_the_challenge_takes_for_one_are_refused_where_it_compares() -> None:
    for choices in (("1", "-1", "yes"), ("yes", "Yes."), ("yes", "two", "2")):
        asked = query("q", POOL, choices=choices)
        checked(asked)
        questions = Questions([asked], [], [query("held", POOL)])
        with pytest.raises(ConfigError, match=r'are one answer; list each once, or write domain.answers = "exact"'):
            check(questions, 2, "vqa")
    check(Questions([query("q", POOL, choices=("yes", "<", ">", "="))], [], [query("held", POOL)]), 2, "vqa")


@pytest.mark.parametrize("question", ["Où est-il?", "  où   EST-il? ", "Ou\u0300 est-il?"])
def test_a_query_is_never_shown_its_own_solved_copy(question: str) -> None:
    asked = replace(query("q", POOL), question="Où est-il?")
    copied = replace(example("solved"), question=question)
    with pytest.raises(ConfigError, match="query 'q': field pool has the query itself as example 'solved'"):
        checked(replace(asked, pool=(*POOL, copied)))
    # The same question with an answer that nobody gave is another case, and so is one about another picture.
    checked(replace(asked, pool=(*POOL, replace(copied, answer="elsewhere"))))
    checked(replace(asked, pool=(*POOL, replace(copied, image=np.zeros((2, 2), np.uint8)))))


def test_a_copy_is_known_by_its_picture_wherever_that_lies(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.png", "b.png", "c.png")]
    for file, content in zip(files, (b"one", b"one", b"other"), strict=True):
        file.write_bytes(content)
    asked = replace(query("q", POOL), image=str(files[0]))
    solved = [replace(example(f"e{n}"), question=asked.question, image=str(file)) for n, file in enumerate(files)]
    assert [asked.is_solved_by(each) for each in solved] == [True, True, False]
    assert [each.id for each in distinct(solved)] == ["e0", "e2"]
    assert [each.id for each in distinct(solved, asked)] == ["e2"]
    assert asked.content == replace(asked, id="r", image=str(files[1])).content
    assert asked.content != replace(asked, image=str(files[2])).content


def test_one_text_stands_once_in_a_pool() -> None:
    repeated = replace(POOL[1], id="c", question=f" {POOL[1].question.upper()}")
    with pytest.raises(ConfigError, match="query 'q': field pool has the text of example 'c' under another id too"):
        checked(query("q", [*POOL, repeated]))
    checked(query("q", [*POOL, replace(repeated, answer="perhaps")]))
