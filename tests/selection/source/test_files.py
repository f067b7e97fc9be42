"""Questions of the user, read from real files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from groupwise.config import ConfigError, validate
from groupwise_selection.source.base import check
from groupwise_selection.source.files import Files

EXAMPLES: list[dict[str, Any]] = [
    {"id": "a", "question": "red?", "answer": "yes", "embedding": [1.0, 0.0], "image": "a.png"},
    {"id": "b", "question": "blue?", "answer": "no", "embedding": [0.0, 1.0], "clusters": {"image": "7"}},
    {"id": "c", "question": "green?", "answer": "no", "embedding": [0.6, 0.8]},
]
QUERIES: list[dict[str, Any]] = [
    {"id": f"q{number}", "question": "?", "answers": ["yes", "no"], "embedding": [0.0, 1.0], "pool": ["a", "b"]}
    for number in range(4)
]


def write(
    folder: Path, queries: list[dict[str, Any]] = QUERIES, examples: list[dict[str, Any]] = EXAMPLES, **keys: Any
) -> Files:
    for name, rows in (("queries", queries), ("examples", examples)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = {
        "kind": "files",
        "queries": str(folder / "queries.jsonl"),
        "examples": str(folder / "examples.jsonl"),
        "num_held_out": 1,
        **keys,
    }
    return validate(Files, table)


def changed(rows: list[dict[str, Any]], place: int, **keys: Any) -> list[dict[str, Any]]:
    found = [dict(row) for row in rows]
    found[place] |= keys
    return [{name: value for name, value in row.items() if value is not ...} for row in found]


def test_files_are_read(tmp_path: Path) -> None:
    questions = write(tmp_path, num_validation=1).read()
    check(questions, 2)
    assert (len(questions.train), len(questions.validation), len(questions.held_out)) == (2, 1, 1)
    first = questions.train[0]
    assert [each.id for each in first.pool] == ["a", "b"]
    assert first.answers == ("yes", "no")
    assert first.pool[0].image == str(tmp_path / "a.png")
    assert first.pool[1].clusters == {"image": "7"}
    assert questions.train[1].pool[0] is first.pool[0]


def test_questions_are_embedded_by_their_words(tmp_path: Path) -> None:
    queries, examples = (
        [{name: value for name, value in row.items() if name not in ("embedding", "pool")} for row in rows]
        for rows in (QUERIES, EXAMPLES)
    )
    queries[0] |= {"question": "is it blue?"}
    questions = write(tmp_path, queries, examples, embedder={"kind": "hashed_words", "size": 1024}, pool_size=2).read()
    check(questions, 2)
    asked = {query.id: query for query in [*questions.train, *questions.held_out]}["q0"]
    assert asked.pool[0].question == "blue?"
    assert float(asked.pool[0].embedding @ asked.embedding) == pytest.approx(1 / 3**0.5, abs=1e-6)
    with pytest.raises(ConfigError, match="embeddings and embedder are both set"):
        write(tmp_path, embedder={"kind": "hashed_words"}, embeddings="vectors")


def test_embeddings_of_a_file_or_a_folder(tmp_path: Path) -> None:
    queries, examples = (
        [{name: value for name, value in row.items() if name != "embedding"} for row in rows]
        for rows in (QUERIES, EXAMPLES)
    )
    vectors = {
        "queries": np.tile(np.array([[0, 1]], np.float32), (4, 1)),
        "examples": np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32),
    }
    save_file(vectors, tmp_path / "vectors.safetensors")
    (tmp_path / "vectors").mkdir()
    for name, value in vectors.items():
        np.save(tmp_path / "vectors" / f"{name}.npy", value)
    for place in ("vectors.safetensors", "vectors"):
        questions = write(tmp_path, queries, examples, embeddings=str(tmp_path / place)).read()
        assert questions.train[0].pool[1].embedding.tolist() == [0.0, 1.0]
    with pytest.raises(ConfigError, match=r"examples is \[3, 2\], and the file has 2 lines"):
        write(tmp_path, queries, examples[:2], embeddings=str(tmp_path / "vectors")).read()
    with pytest.raises(ConfigError, match=r"source\.embeddings = .*nowhere"):
        write(tmp_path, queries, examples, embeddings=str(tmp_path / "nowhere.safetensors")).read()


def test_without_a_pool_the_nearest_are_one(tmp_path: Path) -> None:
    queries = changed(QUERIES, 0, pool=..., id="b")
    questions = write(tmp_path, queries, pool_size=2)
    found = {query.id: query for part in (questions.read().train, questions.read().held_out) for query in part}
    # The nearest is the query itself, whose answer must not be shown to it.
    assert [each.id for each in found["b"].pool] == ["c", "a"]
    with pytest.raises(ConfigError, match=r"query 'b' has no field pool.*source\.pool_size"):
        write(tmp_path, queries).read()


def test_a_pool_of_the_nearest_has_no_solved_copy_of_its_query_and_each_text_once(tmp_path: Path) -> None:
    queries = changed(QUERIES, 0, pool=..., question="Is it a?", answers=["yes"])
    nearest = {"embedding": queries[0]["embedding"], "answer": "yes"}
    copies = [{"id": f"copy {n}", "question": text, **nearest} for n, text in enumerate(("Is it a?", " is  it A?"))]
    others = [{"id": f"other {n}", "question": text, **nearest} for n, text in enumerate(("b?", "B? ", "c?"))]
    questions = write(tmp_path, queries, [*copies, *others, *EXAMPLES], pool_size=3).read()
    check(questions, 2)
    asked = {query.id: query for part in (questions.train, questions.held_out) for query in part}["q0"]
    assert [each.id for each in asked.pool[:2]] == ["other 0", "other 2"]
    assert len(asked.pool) == 3


@pytest.mark.parametrize(
    ("queries", "examples", "says"),
    [
        (changed(QUERIES, 2, pool=["a", "zebra"]), EXAMPLES, r"query 'q2': field pool names 'zebra'"),
        (
            changed(QUERIES, 1, answers="yes"),
            EXAMPLES,
            r"queries\.jsonl, line 2 \('q1'\): answers = .yes.: must be a valid list",
        ),
        (changed(QUERIES, 0, id=3), EXAMPLES, r"queries\.jsonl, line 1: id = 3: must be a valid string"),
        (changed(QUERIES, 3, embedding=...), EXAMPLES, r"line 4 \('q3'\): field embedding is missing"),
        (
            changed(QUERIES, 3, embedding=[1.0]),
            EXAMPLES,
            r"line 4 \('q3'\): field embedding has 1 numbers, those before have 2",
        ),
        (
            QUERIES,
            changed(EXAMPLES, 1, id="a"),
            r"examples\.jsonl, line 2 \('a'\): field id stands on an earlier line too",
        ),
        (
            QUERIES,
            changed(EXAMPLES, 1, answer=5),
            r"examples\.jsonl, line 2 \('b'\): answer = 5: must be a valid string",
        ),
        (QUERIES, changed(EXAMPLES, 1, clusters=["7"]), r"line 2 \('b'\): clusters = "),
        ([], EXAMPLES, r"source\.queries: .* is empty"),
        (
            changed(QUERIES, 1, embedding=[10**400, 0.0]),
            EXAMPLES,
            r"queries\.jsonl, line 2: embedding\[0\] = a number of about 400 digits: is beyond 64 bits",
        ),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, queries: list[dict[str, Any]], examples: list[dict[str, Any]], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        write(tmp_path, queries, examples).read()


def test_an_answer_that_is_missing_is_an_error_of_the_query_that_would_show_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"example 'b' in the pool of query 'q\d': field answer is missing"):
        check(write(tmp_path, QUERIES, changed(EXAMPLES, 1, answer=...)).read(), 2)


def test_files_that_are_none(tmp_path: Path) -> None:
    config = write(tmp_path)
    (tmp_path / "queries.jsonl").write_text('{"id": \n')
    with pytest.raises(ConfigError, match=r"queries\.jsonl, line 1: is no JSON"):
        config.read()
    (tmp_path / "queries.jsonl").write_text("[1]\n")
    with pytest.raises(ConfigError, match="line 1: is a list; write one JSON object"):
        config.read()
    (tmp_path / "queries.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"source\.queries: there is no file"):
        config.read()
    with pytest.raises(ConfigError, match="4 queries, and 9 are to be kept apart"):
        write(tmp_path, num_held_out=9).read()
    (tmp_path / "queries.docx").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"source\.queries: .*queries.docx' ends in '.docx'"):
        config.model_copy(update={"queries": str(tmp_path / "queries.docx")}).read()
