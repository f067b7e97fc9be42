"""The objective's slots: at the top where a person writes, below `objective` in a run's record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.config import ConfigError
from groupwise.experiment import load_experiment
from groupwise.experiment.slots import below_objective, preset_slots, without_preset, written


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["objective.trust.high=0.3"],
            ": objective.trust.high: a slot stands at the top of an experiment; write trust",
        ),
        (["objective.entropy=0.1"], ": objective.entropy: a slot stands at the top of an experiment; write entropy"),
        (["objective={}"], ": objective: a slot stands at the top of an experiment; write for example trust.high"),
        (["objective=3"], ": objective: a slot stands at the top of an experiment; write for example trust.high"),
        (
            ["stages.grpo.set.objective.trust.high=0.3"],
            ": stages.grpo.set.objective.trust.high: a slot stands at the top of a set; write stages.grpo.set.trust",
        ),
        (["controls.supervised.set.objective.entropy=0.1"], "; write controls.supervised.set.entropy"),
        (["trust.high=-1"], ": trust.high = -1: must be greater than 0"),
        (["trust.hihg=0.1"], ": trust.hihg = 0.1: unknown key; allowed: kind, low, high; did you mean high?"),
        (["trst.high=0.1"], "did you mean trust?"),
        (["stages.grpo.set.trust.high=-1"], ": stages.grpo: trust.high = -1: must be"),
    ],
)
def test_a_slot_has_one_spelling(tiny: Path, overrides: list[str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_experiment(tiny, overrides)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_writes_a_slot_below_objective_is_refused(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    path.write_text(f'extends = "{tiny}"\n[[stages]]\nname = "a"\nnum_steps = 2\nset.objective.trust.low = 0.1\n')
    with pytest.raises(ConfigError, match=r"stages\.a\.set\.objective\.trust\.low: a slot stands at the top of a set"):
        load_experiment(path)


def test_a_run_s_record_keeps_its_form_and_is_read(tiny: Path, tmp_path: Path) -> None:
    experiment = load_experiment(tiny, ["trust.high=0.3", "stages.grpo.set.trust.low=0.1"])
    record = experiment.table()
    assert record["objective"]["trust"] == {"kind": "clip", "low": 0.2, "high": 0.3}
    assert record["stages"][-1]["set"]["trust"] == {"low": 0.1}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(record))
    again = load_experiment(path)
    assert (again.objective, again.spans) == (experiment.objective, experiment.spans)
    # Records of earlier versions hold the slots of a set below `objective`.
    record["stages"][-1]["set"] = {"objective": {"trust": {"low": 0.1}}}
    path.write_text(json.dumps(record))
    assert load_experiment(path).spans == experiment.spans
    changed = load_experiment(path, ["method=dapo"])
    assert (changed.objective.trust.high, changed.objective.aggregation.kind) == (0.3, "token_mean")


def test_the_forms_are_each_other_s_inverse() -> None:
    tree = {"method": "dapo", "seed": 3, **preset_slots("dapo"), "entropy": 0.1}
    assert written(below_objective(tree)) == tree
    assert without_preset(tree) == {"method": "dapo", "seed": 3, "entropy": 0.1}
    with pytest.raises(ConfigError, match="did you mean dapo"):
        preset_slots("dappo")
