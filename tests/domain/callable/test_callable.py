"""A domain in one file outside the package: by import path, and as a kind that another package brings. It goes through
the verbs that ours go through.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.packages import installed

from groupwise import load_experiment
from groupwise.cli.app import main
from groupwise.config import ConfigError
from groupwise.experiment.runner import open_domain
from groupwise.streams import Streams

HERE = Path(__file__).parent
REACH, TOML = ((HERE / name).read_text() for name in ("reach.py", "reach.toml"))

# The experiment, shorter, and with a checkpoint often enough to be killed between two.
EXPERIMENT = TOML.replace("num_steps = 60", "num_steps = 40") + '[checkpoint]\nevery = 2\n[track]\nconsole = "none"\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a stranger's, with his module and his experiment, in which his commands run."""
    (tmp_path / "reach.py").write_text(REACH)
    (tmp_path / "reach.toml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    # Every test has a module of this name in a folder of its own.
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "reach", raising=False)
    return tmp_path


def groupwise(*arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")]),
    }
    return subprocess.run(
        [sys.executable, "-m", "groupwise", *arguments], capture_output=True, text=True, timeout=300, env=environment
    )


@pytest.mark.nightly
def test_a_class_outside_the_package_goes_through_every_verb(place: Path) -> None:
    def verb(*arguments: str) -> str:
        done = groupwise(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    checked = verb("check", "reach.toml")
    assert "nats per action" in checked
    assert "laws        all kept" in checked
    assert "held-out near" in verb("train", "reach.toml", "--out", "runs/a").lower()
    summary = json.loads((place / "runs/a/summary.json").read_text())
    assert summary["before"] < 0.2
    assert summary["after"] > 0.8
    assert json.loads((place / "runs/a/config.json").read_text())["domain"]["settings"]["deviation"] == 0.3
    evaluated = json.loads(verb("evaluate", "runs/a", "--json", "--run-code"))["metrics"]
    assert evaluated["near"] == pytest.approx(summary["after"])
    assert "task-1" in verb("sample", "runs/a", "--run-code")
    assert "groupwise evaluate exported --experiment runs/a" in verb("export", "runs/a", "--out", "exported")
    assert (
        json.loads(verb("evaluate", "exported", "--experiment", "runs/a", "--json", "--run-code"))["metrics"]
        == evaluated
    )
    # On a trained model, as an option says it for every kind.
    verb("train", "reach.toml", "--model", "exported", "--out", "runs/b", "train.num_steps=2")
    assert json.loads((place / "runs/b/summary.json").read_text())["before"] == pytest.approx(summary["after"])
    verb("doctor", "runs/a")
    verb("report", "runs/a")
    verb(
        "compare", "reach.toml", "--vary", "method=bnpo,rloo", "--seeds", "2", "--out", "compared", "train.num_steps=4"
    )
    assert "whole step" in verb("estimate", "reach.toml")


@pytest.mark.nightly
def test_killed_it_resumes_to_the_same_end(place: Path) -> None:
    assert groupwise("train", "reach.toml", "--out", "whole").returncode == 0
    started = subprocess.Popen(
        [sys.executable, "-m", "groupwise", "train", "reach.toml", "--out", "cut"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 600
    while not (place / "cut/checkpoints/step-6").is_dir() and time.monotonic() < deadline and started.poll() is None:
        time.sleep(0.002)
    started.send_signal(signal.SIGKILL)
    started.wait()
    assert groupwise("resume", "cut", "--run-code").returncode == 0
    assert (place / "cut/model/model.safetensors").read_bytes() == (
        place / "whole/model/model.safetensors"
    ).read_bytes()


def test_a_users_domain_is_opened_with_its_settings(place: Path) -> None:
    experiment = load_experiment("reach.toml", ["domain.settings.deviation=0.5"])
    domain = open_domain(experiment)
    assert domain.num_prompts == 32
    assert domain.sample(
        domain.prompts([0, 1]), 3, streams=Streams(0), step=0, settings={}, requires=frozenset({"log_prob"})
    ).mask.shape == (6, 5)
    assert experiment.table()["domain"]["settings"] == {"num_train": 32, "num_actions": 5, "deviation": 0.5}


def test_a_payload_too_large_to_show_is_described_by_its_number_of_decisions(place: Path) -> None:
    domain = open_domain(load_experiment("reach.toml", ["domain.settings.num_actions=65"]))
    samples = domain.sample(
        domain.prompts([0]), 1, streams=Streams(0), step=0, settings={}, requires=frozenset({"log_prob"})
    )
    member = torch.tensor([0])
    assert "decisions" not in domain.describe(samples, member)[0]
    large = replace(samples, payload={"actions": samples.payload["actions"]})
    assert domain.describe(large, member)[0]["decisions"] == 65


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["domain.path=nowhere:Reach"], "the module 'nowhere' cannot be imported"),
        (
            ["domain.path=reach:Reech"],
            "domain.path = 'reach:Reech': 'reach' has no class 'Reech'; it has Raises, Reach, Unset, Unwritten; did",
        ),
        (
            ["domain.path=fractions:Fraction"],
            "Fraction does not extend groupwise.Domain; write class Fraction(groupwise.Domain)",
        ),
        (
            ["domain.settings.num_trian=3"],
            (
                "domain.settings.num_trian = 3: unknown key; allowed: num_train, num_actions, deviation; did you mean"
                " num_train?"
            ),
        ),
        (["domain.settings.num_train=a"], 'domain.settings.num_train = "a": must be a valid integer'),
        (["domain.weights=nowhere"], "domain.weights = 'nowhere': its weights are not those of Reach"),
        (["domain.path=reach:Unwritten"], "Unwritten lacks evaluate, reward; groupwise.Domain says what each"),
        (["domain.path=reach:Unset"], "Unset.unit is not set; it must be of type str"),
        (["domain.path=reach:Raises"], "Raises(settings) failed: KeyError: 'goal'"),
    ],
)
def test_a_faulty_users_domain_is_refused_in_one_line(place: Path, changes: list[str], told: str) -> None:
    with (place / "reach.py").open("a") as file:
        file.write(
            "\n\nclass Unwritten(Reach):\n    reward = groupwise.Domain.reward\n    evaluate ="
            " groupwise.Domain.evaluate\n"
        )
        file.write("\n\nclass Unset(Reach):\n    unit = None\n")
        file.write("\n\nclass Raises(Reach):\n    def __init__(self, settings, **others):\n        {}['goal']\n")
    with pytest.raises(ConfigError) as caught:
        open_domain(load_experiment("reach.toml", changes))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value).split("its weights are not")[0]


def test_a_law_that_it_breaks_is_named_before_it_is_trained(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with (place / "reach.py").open("a") as file:
        file.write("\n\nclass Forgetful(Reach):\n    def save(self, folder):\n        (folder / 'note').touch()\n")
    monkeypatch.setattr(sys, "argv", ["groupwise", "check", "reach.toml", "domain.path=reach:Forgetful"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "- saved: raised ConfigError: domain.weights" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_folder_of_a_strangers_runs_no_class_unasked(place: Path) -> None:
    assert groupwise("train", "reach.toml", "--out", "run", "train.num_steps=2").returncode == 0
    shutil.copytree(place / "run", place / "theirs")
    (place / "reach.py").write_text(REACH + "\nopen('it-ran', 'w').close()\n")
    for verb in (
        ["evaluate", "theirs"],
        ["sample", "theirs"],
        ["resume", "theirs"],
        ["train", "theirs", "--out", "again"],
        ["check", "theirs"],
    ):
        done = groupwise(*verb)
        assert done.returncode == 2, done.stderr
        assert "domain.path = reach:Reach" in done.stderr.replace("\n", " ")
    assert not (place / "it-ran").exists()
    assert groupwise("evaluate", "theirs", "--run-code").returncode == 0
    assert (place / "it-ran").exists()


@pytest.mark.nightly
def test_a_word_that_a_closed_set_does_not_have_is_told(place: Path) -> None:
    with (place / "reach.py").open("a") as file:
        file.write(
            "\n\nclass Named(Reach):\n"
            "    def prompts(self, indices):\n"
            "        return [Prompt(p.key, {'prompt': p.key}) for p in super().prompts(indices)]\n\n"
            "    def sample(self, prompts, *arguments, **options):\n"
            "        known = {p.key: p for p in super().prompts(range(self.num_prompts))}\n"
            "        return super().sample([known[p.columns['prompt']] for p in prompts], *arguments, **options)\n"
        )
    trained = groupwise("train", "reach.toml", "domain.path=reach:Named", "--out", "run", "train.num_steps=1")
    assert trained.returncode == 0, trained.stderr
    asked = groupwise("sample", "run", "--prompt", "zebra", "--run-code")
    assert asked.returncode == 2
    assert "domain: Named.sample raised KeyError: 'zebra'" in asked.stderr


@pytest.mark.nightly
def test_an_installed_package_brings_a_kind(place: Path) -> None:
    site = place / "site"
    installed(site, "robots", "groupwise.domains", "reach = robot_reach:Reach\nbroken = robot_broken:Reach")
    shutil.move(place / "reach.py", site / "robot_reach.py")
    (site / "robot_broken.py").write_text("raise RuntimeError('no driver')\n")
    text = EXPERIMENT.replace('kind = "callable"\npath = "reach:Reach"\n\n[domain.settings]\n', 'kind = "reach"\n')
    (place / "reach.toml").write_text(text)
    trained = groupwise("train", "reach.toml", "--out", "run", "train.num_steps=2", path=str(site))
    assert trained.returncode == 0, trained.stderr
    assert json.loads((place / "run/config.json").read_text())["domain"]["num_actions"] == 5
    assert json.loads(groupwise("evaluate", "run", "--json", path=str(site)).stdout)["metrics"]["distance"] > 0

    def refused(*changes: str) -> str:
        done = groupwise("check", "reach.toml", *changes, path=str(site))
        assert done.returncode == 2
        return done.stderr

    assert "unknown key" in refused("domain.num_trian=3")
    assert "did you mean num_train?" in refused("domain.num_trian=3")
    assert "package robots (robot_broken:Reach) cannot be imported: RuntimeError: no driver" in refused(
        "domain.kind=broken"
    ).replace("\n", " ")
    assert "allowed: reach, broken, callable, diffusion, language, restoration, selection" in refused(
        "domain.kind=robot"
    ).replace("\n", " ")
    installed(site, "others", "groupwise.domains", "reach = robot_broken:Reach")
    assert "brought by 2 packages, others and robots" in refused().replace("\n", " ")
