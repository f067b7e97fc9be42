"""The objective's slots stand at the top: in a file, in the object, and in a run's record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.config import ConfigError
from groupwise.experiment import load_experiment
from groupwise.experiment.schema import edited_slots, preset_slots
from groupwise.runs import read_run


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["objective.trust.high=0.3"],
            "a slot stands at the top of an experiment or a set; write trust",
        ),
        (["objective.entropy=0.1"], "unknown key; a slot stands at the top of an experiment or a set; write entropy"),
        (["objective={}"], "a slot stands at the top of an experiment or a set; write for example trust.high"),
        (["objective=3"], "a slot stands at the top of an experiment or a set; write for example trust.high"),
        (["stages.grpo.set.objective.trust.high=0.3"], ": stages.grpo: objective = "),
        (["controls.supervised.set.objective.entropy=0.1"], "write entropy"),
        (["kind=gaussian"], "a kind stands in a table, for example trust.kind; a method is written method = NAME"),
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


def test_file_object_and_record_have_one_nesting(tiny: Path, tmp_path: Path) -> None:
    experiment = load_experiment(tiny, ["trust.high=0.3", "stages.grpo.set.trust.low=0.1"])
    record = experiment.table()
    assert "objective" not in record
    assert record["trust"] == experiment.trust.model_dump(mode="json") == {"kind": "clip", "low": 0.2, "high": 0.3}
    assert experiment.objective.trust is experiment.trust
    (tmp_path / "config.json").write_text(json.dumps(record))
    again = load_experiment(tmp_path / "config.json")
    assert (again.objective, again.plan.stages) == (experiment.objective, experiment.plan.stages)


def test_the_record_of_an_earlier_version_is_read(tiny: Path, tmp_path: Path) -> None:
    experiment = load_experiment(tiny, ["trust.high=0.3"])
    slots = {"name": "grpo+edited", **{key: experiment.table()[key] for key in preset_slots("grpo")}}
    earlier = {key: value for key, value in experiment.table().items() if key not in slots or key == "name"}
    (tmp_path / "config.json").write_text(json.dumps({**earlier, "objective": slots}))
    assert load_experiment(tmp_path / "config.json") == experiment
    assert read_run(tmp_path).config == experiment.table()
    # Another method over it keeps only what differed from the method of before.
    changed = load_experiment(tmp_path / "config.json", ["method=dapo"])
    assert (changed.trust.high, changed.aggregation.kind) == (0.3, "token_mean")  # type: ignore[union-attr]


def test_a_slot_is_edited_where_it_differs_from_the_preset() -> None:
    tree = {"method": "dapo", "seed": 3, **preset_slots("dapo"), "entropy": 0.1}
    assert edited_slots(tree) == {"entropy": 0.1}
    with pytest.raises(ConfigError, match="did you mean dapo"):
        preset_slots("dappo")
