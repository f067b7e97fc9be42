"""OK-VQA's and VQAv2's own files: what is read of them, how pools and splits are drawn, and each fault in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.selection.source.okvqa import changed, write
from tests.tiny_clip import build_clip

from groupwise.config import ConfigError, validate
from groupwise_selection.source.base import check
from groupwise_selection.source.vqa import Vqa


def source(keys: dict[str, Any], **more: Any) -> Vqa:
    return validate(Vqa, {"embedder": {"kind": "hashed_words"}, "pool_size": 4, "num_held_out": 3, **keys, **more})


def test_questions_are_read_with_their_ten_answers_and_coco_s_pictures(tmp_path: Path) -> None:
    questions = source(write(tmp_path)).read()
    check(questions, 4, "vqa")
    assert (len(questions.train), len(questions.held_out), list(questions.remarks)) == (8, 4, [])
    by_id = {query.id: query for query in (*questions.train, *questions.held_out)}
    assert by_id["15"].answers == ("red",) * 6 + ("blue",) * 4  # in the order of answer_id
    assert by_id["15"].image == str(tmp_path / "train2014" / "COCO_train2014_000000000007.jpg")
    assert by_id["15"].clusters == {"image": "7"}
    examples = {example.id: example for query in by_id.values() for example in query.pool}
    assert {examples[name].answer for name in examples} == {"red"}  # of a tie, the lowest answer_id
    # No picture lies on both sides, and none in the pool of a question about it.
    assert not {query.image for query in questions.train} & {query.image for query in questions.held_out}
    assert all(query.image not in {example.image for example in query.pool} for query in by_id.values())


def test_a_random_pool_is_each_query_s_own_and_the_same_on_every_read(tmp_path: Path) -> None:
    keys = write(tmp_path, 24)
    first, again, other = (source(keys, seed=seed).read() for seed in (0, 0, 1))
    pools = [[example.id for example in query.pool] for query in first.train]
    assert pools == [[example.id for example in query.pool] for query in again.train]
    assert len({tuple(pool) for pool in pools}) > len(pools) / 2
    assert first.train[0].id != other.train[0].id
    near = source(keys, pool="nearest").read()
    query = near.held_out[0]
    cosines = sorted((float(example.embedding @ query.embedding) for example in near.bank), reverse=True)
    assert [float(e.embedding @ query.embedding) for e in query.pool] == pytest.approx(cosines[:4])


def test_another_split_is_held_out_and_numbers_bound_it(tmp_path: Path) -> None:
    held_out = write(tmp_path, 8, "val2014", first=40)
    keys = write(tmp_path, 12) | {"held_out": held_out, "num_train": 7, "num_held_out": 5, "num_validation": 2}
    questions = source(keys).read()
    assert (len(questions.train), len(questions.validation), len(questions.held_out)) == (7, 2, 5)
    assert all("val2014" in query.image for query in questions.held_out)
    assert {example.id for query in questions.held_out for example in query.pool} <= {q.id for q in questions.train}
    with pytest.raises(ConfigError, match=r"held_out.questions = .*: question \d+ is about a picture of the training"):
        source(keys | {"held_out": {name: keys[name] for name in held_out}}).read()


def test_multiple_choice_questions_have_their_choices(tmp_path: Path) -> None:
    keys = write(tmp_path)
    changed(keys["questions"], "questions", 3, "multiple_choices", value=["red", "green"])
    by_id = {query.id: query for query in source(keys).read().train + source(keys).read().held_out}
    assert by_id["35"].choices == ("red", "green")
    changed(keys["questions"], "questions", 3, "multiple_choices", value=["green", "grey"])
    with pytest.raises(ConfigError, match=r"1 without the answer among multiple_choices \(first: question 35\)"):
        source(keys).read()


TEN = [{"answer_id": 1, "answer": "red"}] * 10
Q, A = "questions", "annotations"


@pytest.mark.parametrize(
    ("file", "keys", "value", "message"),
    [
        (Q, ("data_subtype",), "val2014", r"data_subtype is 'val2014' in .* and 'train2014' in"),
        (Q, ("data_subtype",), "../up", r"field data_subtype is '../up'; write a name, such as train2014"),
        (Q, ("data_subtype",), None, r"field data_subtype is None; write a name"),
        (Q, ("questions",), {}, r"field questions is \{\}; it must be a list of tables, as OK-VQA has it"),
        (Q, ("questions", 1), 3, r"questions\[1\] is 3; it must be a table"),
        (Q, ("questions", 1, "question_id"), 5, r"questions\[1\]: question_id 5 stands in .*questions\[0\] too"),
        (Q, ("questions", 1, "question_id"), "n7", r"questions\[1\]: question_id is 'n7'; it must be a whole number"),
        (Q, ("questions", 1, "image_id"), True, r"questions\[1\]: image_id is True; it must be a whole number from 0"),
        (Q, ("questions", 1, "image_id"), 7.5, r"questions\[1\]: image_id is 7.5; it must be a whole number from 0"),
        (Q, ("questions", 1, "image_id"), 8, r"annotations\[1\]: image_id is 7, and 8 in the questions"),
        (Q, ("questions", 1, "question"), " ", r"questions\[1\]: question is ' '; it must be a text"),
        (
            Q,
            ("questions", 1, "split"),
            "val",
            r"questions\[1\]: its split is 'val', and None above; write a file for each split",
        ),
        (Q, ("questions", 1, "multiple_choices"), "red", r"multiple_choices is 'red'; it must be a list of texts"),
        (A, ("annotations", 1, "question_id"), 5, r"annotations\[1\]: question_id 5 stands in .*annotations\[0\] too"),
        (A, ("annotations", 1, "answers"), "red", r"annotations\[1\]: answers is 'red'; it must be a list of"),
        (A, ("annotations", 1, "answers"), TEN, r"answer_id are \[1, 1, .*number the answers from 1, each once"),
        (A, ("annotations", 1, "answers", 0), "red", r"annotations\[1\]: answers is \['red', .*must be a list of"),
        (A, ("annotations", 1, "answers"), [], r"without 10 answers \(first: question 15 has 0\)"),
        (A, ("annotations", 1, "answers", 0), None, r"1 of 12 .*without 10 answers \(first: question 15 has 9\)"),
        (A, ("annotations", 1, "answers", 0, "answer"), "", r"without 10 answers \(first: question 15 has 9\)"),
        (
            A,
            ("annotations", 1),
            None,
            r"1 without an annotation \(first: question 15\); mend them, or write source.most_faults = 0.09",
        ),
    ],
)
def test_other_files_are_refused_in_one_line(
    tmp_path: Path, file: str, keys: tuple[Any, ...], value: Any, message: str
) -> None:
    paths = write(tmp_path)
    changed(paths[file], *keys, value=value)
    with pytest.raises(ConfigError, match=message) as caught:
        source(paths).read()
    assert "\n" not in str(caught.value)


def test_ids_may_be_texts_of_digits(tmp_path: Path) -> None:
    paths = write(tmp_path)
    changed(paths[Q], "questions", 1, "question_id", value="15")
    changed(paths[A], "annotations", 1, "image_id", value="7")
    assert len(source(paths).read().train) == 8


def test_pictures_that_are_missing_or_damaged_are_counted_and_left_out_where_that_is_allowed(tmp_path: Path) -> None:
    paths = write(tmp_path)
    (tmp_path / "train2014" / "COCO_train2014_000000000007.jpg").unlink()
    with open(tmp_path / "train2014" / "COCO_train2014_000000000008.jpg", "r+b") as file:
        file.truncate(1500)  # its head opens
    with pytest.raises(ConfigError, match=r"of \d questions cannot be used: .*without a picture|with a damaged"):
        source(paths).read()
    questions = source(paths, most_faults=0.9).read()
    remarks = "\n".join(questions.remarks)
    assert "2 without a picture (first: question " in remarks
    assert "2 with a damaged picture (first: question " in remarks
    assert len(questions.train) + len(questions.held_out) == 8


def test_clip_embeds_questions_with_their_pictures(tmp_path: Path) -> None:
    build_clip(tmp_path / "clip")
    keys = write(tmp_path) | {"embedder": {"kind": "clip", "path": str(tmp_path / "clip"), "share": 0.8}}
    query, other = source(keys).read().train[:2]
    assert np.linalg.norm(query.embedding) == pytest.approx(1, abs=1e-5)
    embedder = source(keys).embedder
    same = embedder([query.question, query.question], [query.image, other.image])
    cosine = float(same[0] @ same[1])
    half = len(same[0]) // 2
    pictures = same[:, :half] / np.linalg.norm(same[:, :half], axis=1, keepdims=True)
    assert cosine == pytest.approx(0.8 * float(pictures[0] @ pictures[1]) + 0.2, abs=1e-5)
    np.testing.assert_allclose(same[0], embedder([query.question], [query.image])[0], atol=1e-6)
    with pytest.raises(ConfigError, match="it embeds a question with its picture; give the picture"):
        embedder(["what?"])
