"""A method of a user's own: a file, or what an installed package brings, wherever a method's name may stand."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.packages import installed

from groupwise import Objective, load_experiment
from groupwise.cli.app import main
from groupwise.config import ConfigError
from groupwise.objective.preset import method_tree

WIDE = """
title = "DAPO with a gate"
extends = "dapo"

[objective.trust]
kind = "gaussian"
sigma = 0.3
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "wide.toml").write_text(WIDE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_slots_stand_on_those_of_the_method_that_it_extends(place: Path) -> None:
    objective = load_experiment("language", ["method=wide.toml"]).objective
    plain = Objective.preset("dapo")
    assert objective.trust.model_dump() == {"kind": "gaussian", "sigma": 0.3}
    assert objective.model_copy(update={"trust": plain.trust, "name": "dapo"}) == plain
    assert Objective.preset("wide.toml").trust == objective.trust


def test_a_layer_above_changes_it_and_an_overlay_is_laid_on_it(place: Path) -> None:
    experiment = load_experiment("language", ["method=wide.toml+tis", "trust.sigma=0.2", "entropy=0.01"])
    assert experiment.method == "dapo+tis"
    assert experiment.objective.trust.sigma == 0.2
    assert experiment.objective.correction.kind == "truncate"
    (place / "corrected.toml").write_text('extends = "wide.toml"\n[objective.correction]\nkind = "mask"\n')
    assert method_tree("corrected.toml")["correction"]["kind"] == "mask"
    assert load_experiment("language", ["method=corrected.toml+tis"]).objective.correction.kind == "truncate"
    assert method_tree("corrected.toml+tis")["correction"]["kind"] == "truncate"


def test_a_stage_and_a_control_take_one(place: Path) -> None:
    stages = '[[stages]]\nname = "a"\nnum_steps = 2\n[stages.set]\nmethod = "wide.toml"\ntrust = { sigma = 0.7 }\n'
    (place / "run.toml").write_text(f'extends = "language"\nmethod = "grpo"\n{stages}')
    (stage,) = load_experiment("run.toml").stages
    assert (stage.set["method"], stage.set["trust"]) == ("dapo", {"kind": "gaussian", "sigma": 0.7})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('extends = "a.toml"\n[objective]\n', "extends itself, through a.toml -> a.toml"),
        ('extends = "dapoo"\n[objective]\n', "no method is called 'dapoo'"),
        ('extends = "nowhere.toml"\n[objective]\n', "there is no file"),
        ('extends = "wide.toml+tis"\n[objective]\n', "lay +tis on this method where it is named"),
        ('extends = "dapoo"\n[objective]\n', "a.toml: extends = 'dapoo': no method is called"),
        ("[objective.trust]\nkind = 'clip'\nlwo = 0.1\n", "a.toml: objective.trust.lwo = 0.1: unknown key"),
        ("[objective.trust]\nkind = 'clip'\nlow = 'x'\n", 'a.toml: objective.trust.low = "x": must be'),
        ("[objective.trust]\nkind = 'callable'\n", "a.toml: objective.trust.path: is missing"),
        ("[objective.trust]\nkind = 'frog'\n", 'a.toml: objective.trust.kind = "frog": unknown kind'),
        ("[objective.matching]\nkind = 'mirrored'\n", "a.toml: objective: trust.kind = 'clip' is ineff"),
        ("[objective.divergence]\nkind = 'none'\nbeta = 0.1\n", "a.toml: objective.divergence.beta = 0.1: unknown key"),
        ("[objective.train]\ngroup_size = 4\n", 'a.toml: objective.train = {"group_size": 4}: is no part of a method'),
        ("[objective]\ntrst = 4\n", "a.toml: objective.trst = 4: is no part of a method"),
        ("[objectiv]\n", "did you mean objective?"),
        ("title = 'a'\n", "objective: is missing"),
        ("[objective]\n[trust]\nlow = 0.1\n", "unknown key; a slot stands below objective; write objective.trust"),
        ("not toml", "a.toml"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(place: Path, text: str, words: str) -> None:
    (place / "a.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        load_experiment("language", ["method=a.toml"])
    assert words in str(error.value)


def test_a_fault_is_laid_to_the_file_that_states_it(place: Path) -> None:
    (place / "low.toml").write_text("[objective.trust]\nhig = 0.3\n")
    (place / "a.toml").write_text('extends = "low.toml"\n[objective.trust]\nlow = 0.1\n')
    for changes, words in [
        (["method=a.toml"], f"{place / 'low.toml'}: objective.trust.hig = 0.3: unknown key"),
        (["stages.grpo.set.method=a.toml"], f"{place / 'low.toml'}: objective.trust.hig = 0.3: unknown key"),
        (["method=wide.toml", "trust.sgma=0.1"], "trust.sgma=0.1: trust.sgma = 0.1: unknown key"),
        (["method=wide.toml", "trust.kind=clip", "trust.low=x"], 'trust.low=x: trust.low = "x"'),
    ]:
        with pytest.raises(ConfigError) as error:
            load_experiment("language", changes)
        assert words in str(error.value)
    with pytest.raises(ConfigError, match=r"low.toml: objective.trust.hig = 0.3: unknown key"):
        Objective.preset("a.toml")
    with pytest.raises(ConfigError, match=r"with changes: trust.sgma = 0.1: unknown key"):
        Objective.preset("wide.toml", **{"trust.sgma": 0.1})


def groupwise(*arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "groupwise", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)


@pytest.mark.slow
def test_the_command_shows_it(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def called(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["groupwise", *arguments])
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        return (status, *capsys.readouterr())

    status, shown, error = called("methods", "wide.toml+tis")
    assert status == 0, error
    assert "DAPO with a gate, on dapo" in shown
    assert "Difference from dapo" in shown
    record = json.loads(called("methods", "wide.toml", "--json")[1])
    assert record["objective"]["trust"] == {"kind": "gaussian", "sigma": 0.3}
    status, _, error = called("methods", "nowhere.toml")
    assert (status, error.count("\n")) == (2, 1)


@pytest.mark.nightly
def test_a_run_goes_on_where_the_file_is_gone(place: Path) -> None:
    short = ["stages.warm_up.num_steps=2", "stages.grpo.num_steps=2", "--no-controls", "--out", "run"]
    trained = groupwise("train", "language", "method=wide.toml", *short)
    assert trained.returncode == 0, trained.stderr
    (place / "wide.toml").unlink()
    resolved = json.loads((place / "run" / "config.json").read_text())
    assert resolved["trust"] == {"kind": "gaussian", "sigma": 0.3}
    assert groupwise("resume", "run").returncode == 0
    assert groupwise("train", "run", "--no-controls", "--out", "again").returncode == 0


@pytest.mark.slow
def test_an_installed_package_brings_methods(place: Path) -> None:
    site = place / "site"
    installed(
        site,
        "gates",
        "groupwise.methods",
        "wide = gates_of:WIDE\ntable = gates_of:TABLE\nnumber = gates_of:NUMBER\nlost = gates_off:A",
    )
    (site / "gates_of.py").write_text(
        f"WIDE = {str(place / 'wide.toml')!r}\nTABLE = {{'objective': {{'entropy': 0.5}}}}\nNUMBER = 3\n"
    )

    def record(name: str) -> dict[str, object]:
        return json.loads(groupwise("methods", name, "--json", path=str(site)).stdout)["objective"]

    assert record("wide")["trust"] == {"kind": "gaussian", "sigma": 0.3}
    assert record("table")["entropy"] == {"kind": "constant", "value": 0.5}

    def refused(name: str) -> str:
        done = groupwise("methods", name, path=str(site))
        assert done.returncode == 2
        return " ".join(done.stderr.split())

    assert "gates_of:NUMBER of package gates is a int; it must be a path or a table" in refused("number")
    assert "the code of package gates (gates_off:A) cannot be imported: ModuleNotFoundError" in refused("lost")
    assert "wide" in refused("wider")
    installed(site, "others", "groupwise.methods", "wide = gates_of:TABLE")
    assert "is brought by 2 packages, gates and others" in refused("wide")
