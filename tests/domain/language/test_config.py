from __future__ import annotations

import subprocess
import sys

import pytest
from tests.domain.language.conftest import TINY

from groupwise.config import ConfigError, merge, validate
from groupwise.domain.language.config import LanguageConfig


@pytest.mark.slow
def test_reading_it_imports_neither_torch_nor_transformers():
    code = (
        "import sys, groupwise.domain.language.config; print([name for name in ('torch', 'transformers',"
        " 'reasoning_gym', 'datasets') if name in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_the_configuration_survives_json(config):
    made = config()
    assert validate(LanguageConfig, made.model_dump(mode="json")) == made


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
