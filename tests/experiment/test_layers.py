"""Layers of an experiment: the method below what is written, stages reached by name."""

from __future__ import annotations

import pytest

from groupwise.config import ConfigError
from groupwise.experiment.layers import refuse_length, stack
from groupwise.experiment.schema import preset_slots

STAGES = {
    "stages": [
        {"name": "warm_up", "num_steps": 5},
        {"name": "grpo", "num_steps": 9, "set": {"trust": {"kind": "clip", "low": 0.1}}},
    ]
}


def test_a_stage_is_changed_by_its_name():
    change = {"stages": {"grpo": {"num_steps": 3, "set": {"trust": {"kind": "gaussian", "sigma": 0.3}}}}}
    assert stack([STAGES, change])["stages"] == [
        {"name": "warm_up", "num_steps": 5},
        {"name": "grpo", "num_steps": 3, "set": {"trust": {"kind": "gaussian", "sigma": 0.3}}},
    ]
    with pytest.raises(
        ConfigError, match=r"stages\.gpro: there is no stage of this name; allowed: warm_up, grpo; did you mean grpo"
    ):
        stack([STAGES, {"stages": {"gpro": {"num_steps": 3}}}])


def test_a_length_that_stages_would_ignore_is_an_error():
    with pytest.raises(ConfigError, match=r"train\.num_steps = 3: has no effect.*stages\.grpo\.num_steps"):
        refuse_length([STAGES, {"train": {"num_steps": 3}}])
    with pytest.raises(ConfigError, match=r"stages\.grpo\.num_steps or stages\.warm_up\.num_steps"):
        refuse_length([{**STAGES, "train": {"num_steps": 3}}])
    with pytest.raises(ConfigError, match=r"write num_steps in each of them, or remove"):
        refuse_length([{"stages": [{"num_steps": 1}], "train": {"num_steps": 3}}])
    refuse_length([STAGES, {"stages": [], "train": {"num_steps": 3}}])
    refuse_length([{"train": {"num_steps": 3}}, STAGES])
    # A run's config.json states every key.
    refuse_length([{**STAGES, "train": {"num_steps": 3}, **preset_slots("grpo")}])


def test_stages_that_are_none_are_left_for_the_validation_to_say():
    assert stack([{"stages": 3}, {"seed": 1}])["stages"] == 3
    with pytest.raises(
        ConfigError, match=r"stages\.a: there is no stage of this name; write train\.num_steps, or \[\["
    ):
        stack([{"stages": {"a": {"num_steps": 3}}}])


def test_the_method_lies_below_what_is_written():
    tree = stack([{"method": "dapo+tis"}, {"trust": {"low": 0.1}}])
    assert tree["trust"] == {**preset_slots("dapo")["trust"], "low": 0.1}
    assert tree["correction"]["kind"] == "truncate"
    assert {**preset_slots("grpo"), "method": "grpo"} == stack([])
    with pytest.raises(ConfigError, match="did you mean dapo"):
        stack([{"method": "dappo"}])


def test_a_named_entry_of_the_preset_is_taken_away_by_null():
    layers = [{"auxiliary": {"supervised": 0.3}}, {"auxiliary": None}]
    assert "auxiliary" not in stack(layers)
    assert stack([*layers, {"auxiliary": {"consistency": 0.1}}])["auxiliary"] == {"consistency": 0.1}
