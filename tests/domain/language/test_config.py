"""The configuration of the language domain, and the metrics of its evaluation."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from tests.domain.language.conftest import TINY

from groupwise.config import ConfigError, merge, validate
from groupwise.domain.language.config import LanguageConfig, Pretrained
from groupwise.domain.language.evaluate import Written, metrics, pass_at, records
from groupwise.domain.protocol import Prompt
from groupwise.reward import RewardTable


@pytest.mark.parametrize(
    ("over", "message"),
    [
        (
            {"data": {"num_train": None}},
            r"data: num_train is missing: a source of kind 'cups' makes as many prompts as it is asked for",
        ),
        ({"rewards": {"correct": {"weight": 0.0}}}, r"rewards names nothing to train on"),
        ({"rewards": {"environment": {"kind": "exact_answer"}}}, r"rewards.environment: the name is taken"),
        ({"sampling": {"greedy": True}}, r"sampling.greedy = true gives a group of equal members"),
        ({"evaluation": {"greedy": False, "sampled": False}}, r"nothing is evaluated"),
        ({"demonstrations": {"column": "a", "writer": "b:c"}}, r"two ways to get the same text"),
        ({"model": {"kind": "pretrained"}}, r"model.path: is missing"),
        ({"model": {"kind": "scrach"}}, r"did you mean scratch\?"),
        ({"sampling_schedule": {"temprature": 1.0}}, r"temprature"),
        (
            {"sampling_schedule": {"temperature": {"kind": "linear", "start": 1.0, "end": -1.0, "num_steps": 9}}},
            r"sampling_schedule.temperature comes to -1: must be greater than 0",
        ),
        (
            {"sampling_schedule": {"top_p": 1.5}},
            r"sampling_schedule.top_p comes to 1.5: must be less than or equal to 1",
        ),
        ({"sampling_schedule": {"max_new_tokens": 0.5}}, r"sampling_schedule.max_new_tokens comes to 0.5"),
    ],
)
def test_contradictions_are_errors(over, message):
    with pytest.raises(ConfigError, match=message):
        validate(LanguageConfig, merge(TINY, over))


# Model.


def test_a_path_is_needed_and_travels_whole():
    model = Pretrained(path="a", dtype="bfloat16", attention="eager", revision="v1")
    assert model.model_dump(exclude_defaults=True) == {
        "path": "a",
        "dtype": "bfloat16",
        "attention": "eager",
        "revision": "v1",
    }
    with pytest.raises(ValidationError):
        Pretrained(path="")


# Evaluate.


@pytest.fixture
def written():
    table = RewardTable(
        {"correct": [1.0, 0.0, 0.0, 0.0], "brief": [None, 0.5, None, 0.1], "judge": [1.0, 1.0, 0.0, 0.0]},
        {"correct": 1.0},
        judges=frozenset({"judge"}),
    )
    prompts = [Prompt("p", {"prompt": "a"}), Prompt("q", {"prompt": "b"})]
    return Written(prompts, 2, table, ["w", "x", "y", "z"], [1, 2, 3, 6], [False, False, False, True])


def test_means_by_hand(written):
    found = metrics("sampled", written, "correct")
    assert next(iter(found)) == "sampled/reward"
    # Sums with equal weights; a missing one adds nothing: 1, .5, 0, .1.
    assert found == pytest.approx(
        {
            "sampled/reward": 0.4,
            "sampled/correct": 0.25,
            "sampled/brief": 0.3,
            "sampled/judge": 0.5,
            "sampled/length": 3.0,
            "sampled/truncated": 0.25,
            "sampled/pass@1": 0.25,
            "sampled/pass@2": 0.5,
        }
    )


def test_pass_at_by_counting_pairs():
    # 5 completions, 2 pass: of the 10 pairs, 3 hold none of them.
    assert pass_at(2, 5, 2) == pytest.approx(0.7)
    assert pass_at(3, 3, 1) == 1.0


def test_records_hold_every_score_and_the_first_texts(written):
    found = records("sampled", written, num_texts=1)
    assert [(record["key"], record["sample"]) for record in found] == [("p", 0), ("p", 1), ("q", 0), ("q", 1)]
    assert [record["rewards"]["correct"] for record in found] == [1.0, 0.0, 0.0, 0.0]
    assert [record.get("text") for record in found] == ["w", "x", None, None]
    assert found[3]["num_tokens"] == 6
