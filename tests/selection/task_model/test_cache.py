"""What a task model answered before: nothing is asked twice, by nobody, and damage costs what is damaged."""

from __future__ import annotations

import logging
import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from groupwise.causal_lm.config import CausalLMConfig
from groupwise.causal_lm.loading import load
from groupwise_selection.example import Example, Query
from groupwise_selection.task_model.cache import AnswerFile, CachedTaskModel, digest
from groupwise_selection.task_model.causal_lm import CausalLMTaskModel
from groupwise_selection.task_model.config import ImageText
from groupwise_selection.task_model.image_text import open_model
from groupwise_selection.task_model.template import TextTemplate

from .conftest import example, picture, query

DEMOS = [example(0, "a + b?", "red"), example(1, "c + d?", "blue"), example(2, "e?", "green")]
QUERIES = [query("q0", "f + a?"), query("q1", "b?")]


class Counted:
    """The real model, and what it was asked for."""

    def __init__(self, causal, **settings):
        self.model, self.asked = CausalLMTaskModel(causal, **settings), []

    def score(self, queries, demos, answers):
        self.asked += [
            (query.id, tuple(demo.id for demo in shown), tuple(own))
            for query, shown, own in zip(queries, demos, answers)
        ]
        return self.model.score(queries, demos, answers)

    def generate(self, queries, demos):
        self.asked += [(query.id, tuple(demo.id for demo in shown)) for query, shown in zip(queries, demos)]
        return self.model.generate(queries, demos)

    def fingerprint(self):
        return self.model.fingerprint()


class Batched:
    """A real model whose last digits differ with the size of a batch: in fp32 they do, on some processors."""

    def __init__(self, model):
        self.model = model

    def score(self, queries, demos, answers):
        return [[value + 1e-6 * len(queries) for value in row] for row in self.model.score(queries, demos, answers)]

    def fingerprint(self):
        return self.model.fingerprint()


def test_each_prompt_is_asked_for_once_with_its_answers(causal, tmp_path):
    inner = Counted(causal)
    cached = CachedTaskModel(inner, tmp_path)
    queries, demos = [QUERIES[0], QUERIES[0], QUERIES[0], QUERIES[1]], [DEMOS[:2], DEMOS[:2], DEMOS[1::-1], []]
    wanted = [["red", "x"], ["red", "x"], ["red", "x"], ["red", "red"]]
    found = cached.score(queries, demos, wanted)
    assert inner.asked == [
        ("q0", ("e0", "e1"), ("red", "x")),
        ("q0", ("e1", "e0"), ("red", "x")),
        ("q1", (), ("red", "red")),
    ]
    assert found == [pytest.approx(values, abs=1e-9) for values in inner.model.score(queries, demos, wanted)]
    assert (cached.hits, cached.misses) == (0, 8)
    assert cached.score(queries[:1], demos[:1], wanted[:1]) == found[:1]
    assert cached.score(queries[:1], demos[:1], [["x"]])[0] == pytest.approx(found[0][1:])
    assert inner.asked[3:] == [("q0", ("e0", "e1"), ("x",))]
    assert (cached.hits, cached.misses) == (2, 9)
    assert "of 11 answers of the task model 2 (18%) were kept" in cached.report()


@pytest.mark.parametrize("kind", ["causal", "llava"])
def test_a_number_does_not_depend_on_what_else_was_asked_or_kept(kind, causal_folder, llava_folder, tmp_path):
    if kind == "causal":
        model = Batched(CausalLMTaskModel(load(CausalLMConfig(path=str(causal_folder), dtype="float32"))))
    else:
        model = Batched(open_model(ImageText(path=str(llava_folder), dtype="float32")))
    random = np.random.default_rng(0)
    shown = [
        example(number, "abcdefgh"[: 1 + number] + "?", word, picture(number))
        for number, word in enumerate(("red", "blue", "green", "blue"))
    ]
    rows = [(query(f"q{number}", "xyzxyz"[: 1 + number % 6] + "?", picture(9 + number)), [shown[place] for place in random.permutation(4)[: number % 4]],  # noqa: E501
             ["red", "blue", "green"][: 1 + number % 3]) for number in range(18)]  # fmt: skip
    whole = CachedTaskModel(model, tmp_path / "whole").score(*zip(*rows, strict=True))
    parts = CachedTaskModel(model, tmp_path / "parts")
    for place in (3, 0, 11, 7):
        parts.score(*zip(rows[place], strict=True))
    assert parts.score(*zip(*rows, strict=True)) == whole
    assert model.score(*zip(*rows, strict=True)) != whole


def test_another_run_finds_the_same_numbers_bit_for_bit(causal, tmp_path):
    first = CachedTaskModel(Counted(causal), tmp_path)
    values, texts = first.score(QUERIES, [DEMOS, []], [["red"], ["x", "blue"]]), first.generate(QUERIES, [DEMOS, []])
    second = CachedTaskModel(Counted(causal), tmp_path)
    assert second.score(QUERIES, [DEMOS, []], [["red"], ["x", "blue"]]) == values
    assert second.generate(QUERIES, [DEMOS, []]) == texts
    assert second.model.asked == []
    other = CachedTaskModel(Counted(causal, template=TextTemplate(separator="\n")), tmp_path)
    other.score(QUERIES[:1], [DEMOS], [["red"]])
    assert len(other.model.asked) == 1


def test_the_key_is_all_that_a_model_may_read():
    one = np.ones(1, np.float32)
    base = Example("a", "2?", "4", one, picture(0), {"image": "i"})
    others = [
        Example("b", "2?", "4", one, picture(0), {"image": "i"}),
        Example("a", "3?", "4", one, picture(0), {"image": "i"}),
        Example("a", "2?", "5", one, picture(0), {"image": "i"}),
        Example("a", "2?", "4", one, picture(1), {"image": "i"}),
        Example("a", "2?", "4", one, None, {"image": "i"}),
        Example("a", "2?", "4", one, picture(0), {"image": "j"}),
        Query("a", "2?", ("4",), one, (), picture(0), (), {"image": "i"}),
        Query("a", "2?", ("4",), one, (), picture(0), ("4",), {"image": "i"}),
    ]
    assert len({digest(each) for each in [base, *others]}) == 9
    assert digest(base) == digest(Example("a", "2?", "4", -one, picture(0).copy(), {"image": "i"}))


def write(path: Path, name: str, begin) -> None:
    file = AnswerFile(path)
    begin.wait()
    for number in range(100):
        file.add({f"{name}-{number}": {"x" * (number % 50): number / 7}, f"shared-{number}": {name: float(number)}})


@pytest.mark.slow
def test_two_processes_write_at_once(tmp_path, caplog):
    path, fork = tmp_path / "answers.sqlite", multiprocessing.get_context("fork")
    begin = fork.Barrier(3)
    writers = [fork.Process(target=write, args=(path, name, begin), daemon=True) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    begin.wait(120)
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    file = AnswerFile(path)
    file.read([f"{name}-{number}" for name in ("a", "b", "shared") for number in range(100)])
    for number in range(100):
        assert [file[f"{name}-{number}"] for name in "ab"] == [{"x" * (number % 50): number / 7}] * 2
        assert file[f"shared-{number}"] == {"a": float(number), "b": float(number)}
    assert not caplog.records


def test_a_damaged_file_is_said_once_and_the_run_goes_on(tmp_path, caplog):
    path = tmp_path / "answers.sqlite"
    path.write_bytes(b"no database" * 100)
    file = AnswerFile(path)
    with caplog.at_level(logging.WARNING):
        file.add({"a": {"x": 0.5}})
        file.read(["a", "b"])
    assert file["a"] == {"x": 0.5}
    assert "b" not in file
    assert len(caplog.records) == 1
