"""Layers of an experiment: slots written short, stages reached by name, the method below what is written."""

from __future__ import annotations

import pytest

from groupwise.config import ConfigError
from groupwise.experiment.layers import lay, lift, objective_edits, preset_table, resolve_objective

STAGES = {
    "stages": [
        {"name": "warm_up", "num_steps": 5},
        {"name": "grpo", "num_steps": 9, "set": {"trust": {"kind": "clip", "low": 0.1}}},
    ]
}


def test_slots_are_lifted_and_a_slot_written_twice_is_an_error():
    assert lift({"trust": {"kind": "clip"}, "seed": 1}) == {"seed": 1, "objective": {"trust": {"kind": "clip"}}}
    assert lift({"entropy": 0.1, "objective": {"entropy": 0.1}}) == {"objective": {"entropy": 0.1}}
    with pytest.raises(ConfigError, match=r"entropy: is written twice"):
        lift({"entropy": 0.1, "objective": {"entropy": 0.2}})


def test_a_stage_is_changed_by_its_name():
    tree = lay(STAGES, {"stages": {"grpo": {"num_steps": 3, "set": {"trust": {"kind": "gaussian", "sigma": 0.3}}}}})
    assert tree["stages"] == [
        {"name": "warm_up", "num_steps": 5},
        {"name": "grpo", "num_steps": 3, "set": {"objective": {"trust": {"kind": "gaussian", "sigma": 0.3}}}},
    ]
    with pytest.raises(
        ConfigError, match=r"stages\.gpro: there is no stage of this name; allowed: warm_up, grpo; did you mean grpo"
    ):
        lay(STAGES, {"stages": {"gpro": {"num_steps": 3}}})


def test_a_length_that_stages_would_ignore_is_an_error():
    with pytest.raises(ConfigError, match=r"train\.num_steps = 3: has no effect.*stages\.grpo\.num_steps"):
        lay(STAGES, {"train": {"num_steps": 3}})
    with pytest.raises(ConfigError, match=r"stages\.grpo\.num_steps or stages\.warm_up\.num_steps"):
        lay({}, {**STAGES, "train": {"num_steps": 3}})
    with pytest.raises(ConfigError, match=r"write num_steps in each of them, or remove"):
        lay({}, {"stages": [{"num_steps": 1}], "train": {"num_steps": 3}})
    assert lay(STAGES, {"stages": [], "train": {"num_steps": 3}})["train"] == {"num_steps": 3}
    resolved = {**STAGES, "train": {"num_steps": 3}, "objective": {"name": "grpo"}}
    assert lay({}, resolved) == resolved, "a run's config.json states every key"


def test_stages_that_are_none_are_left_for_the_validation_to_say():
    assert lay({"stages": 3}, {"seed": 1}) == {"stages": 3, "seed": 1}
    with pytest.raises(ConfigError, match=r"stages\.a: there is no stage of this name; write \[\[stages\]\]"):
        lay({}, {"stages": {"a": {"num_steps": 3}}})
    with pytest.raises(ConfigError, match="must be a table of slots"):
        lift({"objective": 3, "trust": {"kind": "clip"}})


def test_the_method_lies_below_what_is_written():
    tree = resolve_objective({"method": "dapo+tis", "objective": {"trust": {"low": 0.1}}}, "here")
    assert tree["objective"]["trust"] == {**preset_table("dapo")["trust"], "low": 0.1}
    assert tree["objective"]["correction"]["kind"] == "truncate"
    assert resolve_objective({}, "here")["objective"] == preset_table("grpo")


def test_what_stays_when_the_method_is_exchanged():
    tree = resolve_objective({"method": "grpo", "objective": {"trust": {"kind": "gaussian", "sigma": 0.3}}}, "here")
    assert objective_edits(tree) == {"trust": {"kind": "gaussian", "sigma": 0.3}}
    assert objective_edits(resolve_objective({"method": "gspo"}, "here")) == {}


def test_an_unknown_method_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean dapo"):
        resolve_objective({"method": "dappo"}, "here")
