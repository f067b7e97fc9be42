"""Experiments are found by name and by path, and files build on each other."""

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise import config
from groupwise.config import ConfigError, validate
from groupwise.experiment import runner
from groupwise.experiment.catalogue import find, shipped
from groupwise.experiment.code_consent import code_of
from groupwise.experiment.loading import load_experiment
from groupwise.experiment.schema import Experiment, file_schema, preset_slots
from groupwise.runs import read_run


def test_every_shipped_experiment_is_found_by_its_name_and_says_what_it_is():
    for name in shipped():
        source = find(name)
        assert source.path.name == f"{name}.toml"
        assert source.name == name
        assert source.description, f"{name}.toml needs a description"


def test_a_path_a_run_folder_and_its_config(tmp_path: Path):
    (tmp_path / "mine.toml").write_text('description = "Mine."\nseed = 3\n', encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"name": "theirs", "seed": 4}), encoding="utf-8")
    assert find(tmp_path / "mine.toml").tree == {"description": "Mine.", "seed": 3}
    assert find(tmp_path / "mine.toml").name == "mine"
    for path in (tmp_path, tmp_path / "config.json"):
        assert find(path).name == "theirs"


def test_a_file_that_extends_another_keeps_its_own_name(tmp_path: Path):
    (tmp_path / "below.toml").write_text(
        'description = "Below."\nname = "below"\nseed = 1\n[trust]\nkind = "clip"\nlow = 0.1\n', encoding="utf-8"
    )
    (tmp_path / "above.toml").write_text('extends = "below"\n[trust]\nkind = "gaussian"\n', encoding="utf-8")
    source = find(tmp_path / "above.toml")
    assert source.name == "above"
    assert source.tree == {"seed": 1, "trust": {"kind": "gaussian"}}


def test_a_circle_and_an_unknown_name_are_errors(tmp_path: Path):
    (tmp_path / "a.toml").write_text('extends = "b"\n', encoding="utf-8")
    (tmp_path / "b.toml").write_text('extends = "a.toml"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"through a\.toml -> b\.toml -> a\.toml;"):
        find(tmp_path / "a.toml")
    with pytest.raises(ConfigError, match="no such file"):
        find(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="'nothing_like_it' is neither a shipped experiment nor a file"):
        find("nothing_like_it")


METHODS = ("rejection_sampling", "dapo", "flow_grpo", "topr")


@pytest.mark.parametrize(
    "pairs",
    [
        list(zip(("language", "diffusion", "restoration", "selection"), METHODS, strict=True)),
        # Source 002's moving reference needs a divergence, and the message says so.
        pytest.param(
            list(itertools.product(set(shipped()) - {"prompts", "source_002"}, METHODS)), marks=pytest.mark.nightly
        ),
    ],
    ids=["one of each domain", "every"],
)
def test_a_shipped_experiment_takes_another_method(pairs: Iterable[tuple[str, str]]) -> None:
    for name, method in pairs:
        assert load_experiment(name, [f"method={method}"]).method == method


# The objective's slots stand at the top: in a file, in the object, and in a run's record.


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["objective.trust.high=0.3"],
            "a slot stands at the top of an experiment or a set; write trust",
        ),
        (["objective.entropy=0.1"], "unknown key; a slot stands at the top of an experiment or a set; write entropy"),
        (["objective={}"], "a slot stands at the top of an experiment or a set; write for example trust.high"),
        (["stages.grpo.set.objective.trust.high=0.3"], ": stages.grpo: objective = "),
        (["controls.supervised.set.objective.entropy=0.1"], "write entropy"),
        (["trust.high=-1"], ": trust.high = -1: must be greater than 0"),
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


# The schema of experiment files, as an editor reads it.


def test_an_experiment_file_may_write_slots_at_the_top_and_leave_everything_else_out():
    read = file_schema()
    properties = read["properties"]
    assert {"extends", "method", "trust", "credit", "domain", "stages", "controls"} <= set(properties)
    assert "required" not in read
    assert read["additionalProperties"] is False
    assert properties["method"]["description"].startswith("a preset")
    assert json.loads(json.dumps(read)) == read
    kinds = {reference["$ref"].rpartition("/")[2] for reference in properties["trust"]["anyOf"]}
    assert {"Clip", "Gaussian", "Cispo"} <= kinds


@pytest.mark.slow
def test_a_shipped_comparison_names_methods_that_exist() -> None:
    """Source 000's grid is read as a user's would be: every variant is a valid experiment, and no two are the same."""
    from groupwise_look.compare.grids import variants

    shipped = load_experiment("source_000").comparison
    assert shipped is not None
    experiments = [load_experiment("source_000", list(variant.overrides)) for variant in variants(shipped.vary)]
    assert [experiment.method for experiment in experiments][:4] == ["grpo", "gspo", "dapo", "cispo"]
    assert (
        len({experiment.objective.model_copy(update={"name": ""}).model_dump_json() for experiment in experiments})
        == len(experiments)
        == 13
    )
    assert all(experiment.train.updates_per_batch > 1 for experiment in experiments)


def test_a_control_with_a_method_of_its_own_is_not_changed_by_the_experiments_edits() -> None:
    """Smoothing is ineffective under rejection sampling, and says nothing about it: the edit belongs to the
    experiment's method.
    """
    edited = load_experiment("language", ["smoothing.kind=ema"])
    assert edited.spans[-1].objective.smoothing.kind == "ema"
    (control,) = edited.plan.controls["rejection_sampling"]
    assert control.objective.name == "rejection_sampling"


@pytest.mark.slow
def test_every_count_of_an_experiment_has_an_upper_bound() -> None:
    """A count beyond any machine's memory or patience is a typing error."""

    def unbounded(node: Any, place: str) -> Iterator[str]:
        if isinstance(node, dict):
            if node.get("type") == "integer" and not node.keys() & {"maximum", "exclusiveMaximum", "const", "enum"}:
                yield place
            for key, inner in node.items():
                yield from unbounded(inner, f"{place}.{key}")
        elif isinstance(node, list):
            for inner in node:
                yield from unbounded(inner, place)

    assert list(unbounded(file_schema(), "")) == []


def test_an_experiment_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stages and two controls are five validations, of which a run repeats none; they were 17."""
    validated = []

    def counted(model: type[Any], tree: Any, source: str = "") -> Any:
        validated.extend([source] if model is Experiment else [])
        return validate(model, tree, source)

    for module in (config, runner):
        monkeypatch.setattr(module, "validate", counted)
    experiment = load_experiment("language")
    stages, controls = ["stages.warm_up", "stages.grpo"], ["controls.supervised", "controls.rejection_sampling"]
    assert validated == ["language", *stages, *controls]
    runner.job_of(experiment)
    code_of(experiment)
    assert len(validated) == 5
    copy = experiment.model_copy(update={"seed": 7})
    assert [stage.seed for stage in copy.plan.stages] == [7, 7]
    assert [stage.seed for stage in experiment.plan.stages] == [0, 0]
    assert experiment.model_copy() == experiment


# An unknown key that another system has is answered with what is written here.


@pytest.mark.parametrize(
    ("override", "place"),
    [
        ("trust.path=mine:Gate", "trust"),
        ('entropy={kind="linear",start=1.0,end=0.0,num_steps=2,path="mine:Rate"}', "entropy"),
        ('reference={kind="frozen",path="mine:Rule"}', "reference"),
        ("domain.rewards.correct.path=mine:reward", "domain.rewards.correct"),
    ],
)
def test_a_path_beside_a_shipped_kind_is_told_the_kind_to_write(tiny: Path, override: str, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_experiment(tiny, [override])
    assert f'unknown key; it belongs to code of your own; write {place}.kind = "callable" beside it' in str(
        caught.value
    )
    assert "\n" not in str(caught.value)
