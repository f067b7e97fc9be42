"""From files and overrides to experiments: layers, stages, controls, errors, and a saved configuration that repeats
itself.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from groupwise.config import ConfigError
from groupwise.experiment import load_experiment
from groupwise.experiment.catalogue import shipped
from groupwise.experiment.code_consent import code_of, shipped_code
from groupwise.experiment.loading import edits, stack
from groupwise.objective import Objective


def message(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_experiment(path, list(overrides))
    return str(caught.value)


def test_an_empty_table_over_one_that_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"controls = \{\}: an empty table changes nothing; write controls=null"):
        load_experiment("language", ["controls={}"])
    assert load_experiment("language", ["controls=null"]).controls == {}
    assert load_experiment("guess_the_number", ["controls=null"]).controls == {}, "there are none to take away"
    assert load_experiment("language", ["credit.temporal_decay={}"]).objective.credit.temporal_decay is not None


COMPLETE = [name for name in shipped() if name != "prompts"]
"""All but the one whose reward is the reader's own."""


def test_every_shipped_experiment_is_valid_and_its_code_needs_no_consent() -> None:
    experiments = {name: load_experiment(name) for name in COMPLETE}
    assert [experiment.name for experiment in experiments.values()] == COMPLETE
    with pytest.raises(ConfigError, match="prompts: domain: rewards names nothing to train on"):
        load_experiment("prompts")
    paths = {str(reference.path) for experiment in experiments.values() for reference in code_of(experiment)}
    assert paths <= shipped_code()
    assert all(path.startswith("groupwise") for path in shipped_code())


@pytest.mark.parametrize(
    "names",
    [("language", "diffusion", "restoration", "selection"), pytest.param(COMPLETE, marks=pytest.mark.slow)],
    ids=["one of each domain", "every"],
)
def test_a_shipped_experiment_survives_being_saved(names: Sequence[str], tmp_path: Path) -> None:
    for name in names:
        experiment = load_experiment(name)
        (tmp_path / "config.json").write_text(json.dumps(experiment.table()), encoding="utf-8")
        assert load_experiment(tmp_path / "config.json") == experiment, name


def test_the_layers_lie_in_order(tiny: Path):
    experiment = load_experiment(tiny, ["trust.low=0.1", "train.group_size=6"])
    dapo = Objective.preset("dapo")
    assert (experiment.name, experiment.objective.name) == ("tiny", "dapo+edited")
    assert experiment.objective.admission == dapo.admission
    assert (experiment.objective.trust.low, experiment.objective.trust.high) == (0.1, 0.3)
    assert experiment.train.group_size == 6
    assert edits(experiment) == {"trust.low": (0.2, 0.1), "trust.high": (0.28, 0.3)}


def test_a_changed_kind_starts_from_its_own_defaults(tiny: Path):
    trust = load_experiment(tiny, ["trust.kind=gaussian"]).objective.trust
    assert (trust.kind, trust.sigma) == ("gaussian", 0.2)
    assert load_experiment(tiny, ["trust.sigma=0.4", "trust.kind=gaussian"]).objective.trust.sigma == 0.4


def test_another_method_keeps_what_the_file_says(tiny: Path):
    experiment = load_experiment(tiny, ["method=grpo"])
    assert experiment.objective.divergence == Objective.preset("grpo").divergence
    assert experiment.objective.trust.high == 0.3
    assert load_experiment(tiny, ["trust.high=0.28"]).objective.name == "dapo"


def test_a_saved_configuration_repeats_itself_and_takes_changes(tiny: Path, tmp_path: Path):
    experiment = load_experiment(tiny, ["seed=3", "trust.low=0.1"])
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(json.dumps(experiment.table()), encoding="utf-8")
    assert load_experiment(run / "config.json") == experiment
    assert load_experiment(run) == experiment
    changed = load_experiment(run, ["method=grpo"])
    assert changed.objective.divergence == Objective.preset("grpo").divergence
    assert changed.objective.trust == experiment.objective.trust
    assert load_experiment(run, ["stages.grpo.num_steps=7"]).spans[1].train.num_steps == 7


def test_stages_and_controls_are_experiments_of_their_own(tiny: Path):
    experiment = load_experiment(tiny)
    warm_up, grpo = experiment.spans
    assert (warm_up.name, warm_up.train.num_steps, warm_up.samples) == ("warm_up", 3, False)
    assert (grpo.name, grpo.train.num_steps, grpo.samples) == ("grpo", 2, True)
    assert grpo.objective == experiment.objective
    (control,) = experiment.plan.controls["supervised"]
    assert (control.name, control.samples) == ("grpo", False)
    assert control.objective.name == "dapo+edited"
    assert load_experiment(tiny, ["stages.warm_up.set.method=grpo"]).spans[0].objective.divergence.kind == "k3"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["trust.hihg=0.3"], "trust.hihg = 0.3: unknown key; allowed: kind, low, high; did you mean high?"),
        (["trst.high=0.3"], "did you mean trust?"),
        (["train.num_stps=3"], "did you mean num_steps?"),
        (["num_steps=3"], "did you mean train.num_steps?"),
        (["train.trust.kind=clip"], "did you mean trust?"),
        (["domain.rewards.correct.kind=exact_anser"], "did you mean exact_answer?"),
        (["method=dappo"], "did you mean dapo"),
        (["method=dapo+tsi"], "did you mean tis?"),
        (["train.group_size=1"], "write train.group_size = 2 or more"),
        (["divergence.kind=k3", "reference.kind=absent"], 'write reference.kind = "frozen", or divergence.beta = 0'),
        (["divergence.kind=none", "reference.kind=ema"], "no term of the objective uses a reference"),
        (["optimiser.learning_rate=nan"], "optimiser.learning_rate = nan: is not a number"),
        (["optimiser.learning_rate=inf"], "optimiser.learning_rate: inf is no finite number"),
        (["optimiser.learning_rate=-1"], "optimiser.learning_rate: comes down to -1 and must not be negative"),
        (
            [
                f"optimiser.learning_rate.{assignment}"
                for assignment in ("kind=linear", "start=0.1", "end=-0.5", "num_steps=5")
            ],
            "learning_rate: comes down to -0.5",
        ),
        (["auxiliary.supervised=-1"], "auxiliary.supervised comes down to -1"),
        (
            ["train.num_steps=3"],
            (
                "train.num_steps = 3: has no effect: this experiment has stages, which state their own length; write"
                " stages.grpo.num_steps"
            ),
        ),
        (["train.num_epochs=3"], "train.num_epochs = 3: has no effect: this experiment has stages"),
        (["stages.grpo.num_epochs=0"], "stages[1].num_epochs = 0: must be greater than 0"),
        (
            ["stages.grpo.set.train.num_steps=3"],
            "stages.grpo.set.train.num_steps: has no effect; write stages.grpo.num_steps",
        ),
        (
            ["controls.supervised.set.train.num_steps=3"],
            "controls.supervised.set.train.num_steps: has no effect; a control trains for as long",
        ),
        (["stages=3"], "stages = 3: must be a"),
        (["kind=dapo"], 'kind = "dapo": unknown key; a kind stands in a table'),
        (["stages.grpo.set.kind=dapo"], 'stages.grpo.set.kind = "dapo": unknown key'),
        (["optimiser=nonsense"], 'optimiser.kind = "nonsense": unknown kind; allowed: adamw, callable'),
        (["optimiser=3"], "optimiser = 3: must be a table"),
        (["optimiser=[adamw]"], 'optimiser = ["adamw"]: must be a table'),
        (["optimiser.kind=[adamw]"], "optimiser.kind = "),
        (["optimiser=callable"], "optimiser.path: is missing"),
        (["stages.grpo.set=adamw"], 'set = "adamw": must be a table'),
        (["method={kind=dapo}"], "the value '{kind=dapo}' is not valid TOML"),
        (["stages.grpo.set.domain=restoration"], "stages.grpo.set.domain.kind: belongs to the whole run"),
        (["stages.grpo=3"], "stages.grpo = 3: must name a key of the stage; write for example stages.grpo.num_steps"),
        (["objective=3"], "a slot stands at the top of an experiment or a set; write for example trust.high"),
        (["stages.grpo.set.trust.hihg=1"], "stages.grpo: trust.hihg = 1: unknown key"),
        (["stages.grpo.set.seed=1"], "stages.grpo.set.seed: belongs to the whole run"),
        (["stages.grpo.set.description=x"], "stages.grpo.set.description: belongs to the whole run"),
        (["stages.grpo.set.train.device=cuda"], "stages.grpo.set.train.device: belongs to the whole run"),
        (
            ["controls.supervised.set.train.num_threads=2"],
            "controls.supervised.set.train.num_threads: belongs to the whole run",
        ),
        (["stages.grpo.set.domain.model.dtype=float64"], "stages.grpo.set.domain.model: belongs to the whole run"),
        (["stages.grpo.set.domain.kind=restoration"], "stages.grpo.set.domain.kind: belongs to the whole run"),
        (["controls.supervised.set.trust.kind=clp"], "controls.supervised: trust.kind"),
        (["stages.grpo.set.policy_weight=0.0"], "controls: they replace what samples, and no stage does"),
        (["domain.data.num_train=0"], "domain.data.num_train = 0: must be greater than or equal to 1"),
        (["name=a/b"], "'a/b' cannot be the name of a folder"),
        (["name=.."], "'..' cannot be the name of a folder"),
        (["controls.a/b.set={}"], "cannot be read"),
        (["controls.'../b'.set={}"], "'../b' cannot be the name of a folder"),
        (["seed=99999999999999999999"], "seed = 99999999999999999999: must be less than 9223372036854775808"),
        (["method=tis"], "'tis' is an overlay, laid on a method with +; did you mean dapo+tis?"),
        (["domain.model={kind = 'pretrained', path = ''}"], 'domain.model.path = "": must not be empty'),
        (["train.group_size=four", "seed=-1", "optimiser.beta1=2"], "3 problems"),
    ],
)
def test_what_is_wrong_is_said(tiny: Path, overrides: list[str], expected: str):
    assert expected in message(tiny, *overrides)


def test_a_contradiction_inside_a_slot_is_said_once_with_its_key(tiny: Path):
    text = message(tiny, "credit.temporal_decay={}", "ratio.kind=arithmetic")
    assert text.count("ineffective") == 1
    assert "write ratio.gradient = 'token'" in text


def test_naming_the_kind_already_in_force_keeps_what_lies_below(tmp_path: Path):
    (tmp_path / "same.toml").write_text('extends = "language"\n[optimiser]\nkind = "adamw"\n')
    assert load_experiment(tmp_path / "same.toml").optimiser == load_experiment("language").optimiser
    (tmp_path / "below.toml").write_text('extends = "language"\nmethod = "dapo"\n[trust]\nhigh = 0.5\n')
    (tmp_path / "above.toml").write_text('extends = "below"\n[trust]\nkind = "clip"\n')
    assert load_experiment(tmp_path / "above.toml").objective.trust.high == 0.5


@pytest.mark.parametrize("place", ["optimiser", "stages.grpo.set.optimiser", "stages.warm_up.set.optimiser"])
def test_a_word_is_the_kind_of_its_table_at_every_layer(place: str, tmp_path: Path):
    kind = load_experiment("language", [f"{place}.kind=adamw"])
    assert load_experiment("language", [f"{place}=adamw"]).spans == kind.spans
    (tmp_path / "word.toml").write_text(f'extends = "language"\n{place} = "adamw"\n')
    assert load_experiment(tmp_path / "word.toml").spans[-1].optimiser == kind.spans[-1].optimiser
    changed = load_experiment("language", ["trust=gaussian", "trust.sigma=.3", "domain.engine=builtin"])
    assert changed.objective.trust == load_experiment("language", ["trust.sigma=.3", "trust=gaussian"]).objective.trust
    assert (changed.objective.trust.kind, changed.objective.trust.sigma) == ("gaussian", 0.3)
    assert Objective.preset("dapo", trust="clip") == Objective.preset("dapo")


LENGTH = (
    "has no effect: this experiment has stages, which state their own length; write stages.grpo.num_steps or"
    " stages.warm_up.num_steps"
)


def test_a_table_that_names_no_kind_stays_of_the_kind_below(tmp_path: Path):
    (tmp_path / "rate.toml").write_text('extends = "language"\n[optimiser]\nlearning_rate = { start = 1e-3 }\n')
    rate = load_experiment(tmp_path / "rate.toml").optimiser.learning_rate
    assert (rate.kind, rate.start, rate.end) == ("linear", 1e-3, 5e-5)


def test_naming_the_kind_in_force_inside_a_set_keeps_what_lies_below(tmp_path: Path):
    stage = (
        '[[stages]]\nname = "grpo"\nnum_steps = 5\nset = { trust = { high = 0.5 }, optimiser = { learning_rate = {'
        " start = 3e-3 } } }\n"
    )
    control = "[controls.other]\nset = { trust = { high = 0.4 } }\n"
    (tmp_path / "below.toml").write_text(f'extends = "language"\nmethod = "dapo"\n{stage}{control}')
    (tmp_path / "above.toml").write_text(
        'extends = "below"\n[stages.grpo.set]\ntrust = { kind = "clip" }\noptimiser = { learning_rate = { kind ='
        ' "linear", end = 0.0 } }\n[controls.other.set.trust]\nkind = "clip"\nlow = 0.1\n'
    )
    above = load_experiment(tmp_path / "above.toml")
    (span,) = above.spans
    assert (span.objective.trust.high, span.optimiser.learning_rate.start, span.optimiser.learning_rate.end) == (
        0.5,
        3e-3,
        0.0,
    )
    (control,) = above.plan.controls["other"]
    assert (control.objective.trust.high, control.objective.trust.low) == (0.4, 0.1)
    (again,) = load_experiment(tmp_path / "below.toml", ["stages.grpo.set.trust.kind=clip"]).spans
    assert again.objective.trust.high == 0.5
    (gaussian,) = load_experiment(tmp_path / "below.toml", ["stages.grpo.set.trust.kind=gaussian"]).spans
    assert gaussian.objective.trust.kind == "gaussian"


def test_null_takes_away_what_lies_below(tmp_path: Path):
    assert not load_experiment("restoration", ["controls=null"]).controls
    assert not load_experiment("restoration", ["auxiliary=null"]).objective.auxiliary
    warm_up, grpo = load_experiment("restoration", ["stages.grpo.set.auxiliary=null"]).spans
    assert (set(warm_up.objective.auxiliary), set(grpo.objective.auxiliary)) == ({"supervised"}, set())
    assert load_experiment("restoration", ["stages.supervised.set=null"]).spans[0].samples
    (tmp_path / "none.toml").write_text(
        'extends = "restoration"\ncontrols = "null"\n[stages.grpo.set]\nauxiliary = "null"\n[optimiser]\n'
    )
    none = load_experiment(tmp_path / "none.toml")
    assert (none.controls, none.spans[1].objective.auxiliary, none.optimiser) == (
        {},
        {},
        load_experiment("restoration").optimiser,
    )
    (tmp_path / "config.json").write_text(json.dumps(none.table()))
    assert load_experiment(tmp_path / "config.json") == none
    (tmp_path / "other.toml").write_text(
        'extends = "language"\n[controls.supervised.set]\nauxiliary = "null"\npolicy_weight = 1.0\n'
    )
    assert not load_experiment(tmp_path / "other.toml").plan.controls["supervised"][0].objective.auxiliary


def test_a_stage_that_names_a_method_takes_its_kinds(tmp_path: Path):
    stage = '[[stages]]\nname = "a"\nnum_steps = 5\nset = { method = "dual_clip", trust = { bound = 4.0 } }\n'
    (tmp_path / "below.toml").write_text(f'extends = "language"\n{stage}')
    (span,) = load_experiment(tmp_path / "below.toml", ["stages.a.set.trust.kind=dual_clip"]).spans
    assert (span.objective.trust.kind, span.objective.trust.bound) == ("dual_clip", 4.0)


def test_a_length_that_no_stage_reads_is_an_error_in_a_file_too(tmp_path: Path):
    (tmp_path / "long.toml").write_text('extends = "language"\n[train]\nnum_steps = 500\n')
    assert f"long.toml: train.num_steps = 500: {LENGTH}" in message(tmp_path / "long.toml")
    (tmp_path / "both.toml").write_text(
        'extends = "language"\n[train]\nnum_steps = 500\n[[stages]]\nname = "a"\nnum_steps = 5\n'
    )
    assert "write stages.a.num_steps" in message(tmp_path / "both.toml")
    (tmp_path / "stage.toml").write_text('extends = "language"\n[stages.grpo]\nnum_steps = 20\n')
    assert [span.train.num_steps for span in load_experiment(tmp_path / "stage.toml").spans] == [600, 20]
    assert (
        load_experiment(
            "language", {"stages": [], "controls": None, "domain": {"demonstrations": None}, "train": {"num_steps": 7}}
        )
        .spans[0]
        .train.num_steps
        == 7
    )


def test_a_slot_without_a_kind_is_of_the_kind_of_its_method(tmp_path: Path):
    (tmp_path / "dual.toml").write_text('extends = "language"\nmethod = "dual_clip"\n[trust]\nbound = 4.0\n')
    trust = load_experiment(tmp_path / "dual.toml").objective.trust
    assert (trust.kind, trust.bound) == ("dual_clip", 4.0)
    (tmp_path / "wrong.toml").write_text('extends = "language"\nmethod = "cispo"\n[trust]\nhigh = 4.0\n')
    assert "trust.high = 4.0: unknown key; allowed: kind, maximum" in message(tmp_path / "wrong.toml")


# Layers of an experiment: the method below what is written, stages reached by name.


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


# What was changed for the whole run and holds in no more than a part of it.


def said(caplog: pytest.LogCaptureFixture, name: str, *overrides: str) -> list[str]:
    caplog.clear()
    load_experiment(name, list(overrides))
    return [record.getMessage() for record in caplog.records if "sets its own" in record.getMessage()]


def test_a_key_that_a_sampling_stage_sets_is_said(caplog: pytest.LogCaptureFixture) -> None:
    of_learning_rate, of_trust = said(
        caplog, "source_001_progressive", "optimiser.learning_rate=1e-6", "trust.low=0.3", "divergence.kind=exact"
    )
    assert (
        of_learning_rate == "optimiser.learning_rate: stage full sets its own, which holds there; write"
        " stages.full.set.optimiser.learning_rate=... as well"
    )
    assert of_trust.startswith("trust.low: stage full sets its own")
    # A part of what a stage replaces as a whole.
    schedule = 'auxiliary.supervised={kind="linear", start=0.9, end=0.1, num_steps=10}'
    assert said(caplog, "source_001_progressive", schedule) != []


def test_an_override_that_holds_in_every_sampling_stage_gives_no_remark(caplog: pytest.LogCaptureFixture) -> None:
    assert (
        said(
            caplog,
            "source_001_improved",
            "optimiser.learning_rate=2e-6",
            "auxiliary.supervised=0.8",
            "trust.low=0.1",
            "advantage.clip=2.0",
        )
        == []
    )
    assert said(caplog, "language", "optimiser.learning_rate=1e-4", "train.group_size=4") == []
    assert said(caplog, "source_001_progressive", "stages.full.set.trust.low=0.05", "train.prompts_per_step=1") == []


def test_rewards_that_a_file_inherits_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "red.toml"
    file.write_text('extends = "diffusion_prompts"\n[domain.rewards.bright]\nkind = "jpeg_size"\n')
    load_experiment(file)
    load_experiment(file, ["domain.rewards.small=null"])
    load_experiment("diffusion_prompts")
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("all rewards are trained on: small (diffusion_prompts.toml), bright (red.toml); ")
