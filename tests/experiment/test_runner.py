"""From an experiment to a job: stages resolved, controls, what is said at the start, and folders that are not left
behind.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.config import ConfigError, read_json
from groupwise.domain.language.config import Pretrained
from groupwise.experiment.loading import load_experiment
from groupwise.experiment.runner import check_same_settings, job_of, open_domain, remarks, resume, run, with_model
from groupwise.reward import RewardError
from groupwise.runs import RunFolder
from groupwise.training import distributed
from groupwise.training.run import run_folder
from groupwise.training.run.run_folder import locked, write_json


def test_a_job_holds_every_stage_resolved(tiny: Path):
    experiment = load_experiment(tiny, ["stages.grpo.set.optimiser.learning_rate=2e-3", "seed=4"])
    job = job_of(experiment)
    warm_up, grpo = job.recipes
    assert (job.name, job.seed, job.resolved) == ("tiny", 4, experiment.table())
    assert (warm_up.name, warm_up.samples, warm_up.train.num_steps) == ("warm_up", False, 3)
    assert (grpo.name, grpo.samples, grpo.train.num_steps) == ("grpo", True, 2)
    assert (warm_up.optimiser.rate(0), grpo.optimiser.rate(0)) == (1e-3, 2e-3)
    assert [recipe.samples for recipe in job.controls["supervised"]] == [False]
    assert job.controls["supervised"][0].optimiser.rate(0) == 2e-3


def test_the_domain_follows_the_stage_and_keeps_its_model(tiny: Path):
    experiment = load_experiment(
        tiny,
        [
            "stages.grpo.set.domain.sampling.max_new_tokens=3",
            "stages.grpo.set.domain.sampling_schedule.temperature=0.7",
        ],
    )
    job = job_of(experiment)
    domain = job.build_domain(torch.device("cpu"))
    assert job.recipes[0].adapt(domain) is domain
    adapted = job.recipes[1].adapt(domain)
    assert adapted.config.sampling.max_new_tokens == 3
    assert adapted.module is domain.module
    assert job.recipes[1].sampling["temperature"].at(0) == 0.7
    assert job.recipes[0].sampling == {}


def test_what_was_changed_in_the_method_is_said(tiny: Path):
    sentences = remarks(load_experiment(tiny, ["advantage.kind=rank"]))
    assert sentences[0].startswith("method dapo+edited: ")
    assert "trust.high 0.28 -> 0.3" in sentences[0]
    assert "advantage.kind z_score -> rank" in sentences[0]
    assert any("discards the size of differences" in line for line in sentences[1:])
    assert remarks(load_experiment(tiny, ["trust.high=0.28"])) == []
    exchanged, *_ = remarks(load_experiment(tiny, ["trust.kind=gaussian", "trust.sigma=0.7"]))
    assert exchanged == "method dapo+edited: trust.kind clip -> gaussian, trust.sigma unset -> 0.7"

    without, *_ = remarks(load_experiment(tiny, ["method=grpo", "trust.high=0.2", "divergence.kind=none"]))
    assert without == "method grpo+edited: divergence.kind k3 -> none"
    schedule = [
        f"divergence.beta.{assignment}" for assignment in ("kind=linear", "start=0.1", "end=0.0", "num_steps=5")
    ]
    scheduled, *_ = remarks(load_experiment(tiny, ["method=grpo", "trust.high=0.2", *schedule]))
    assert scheduled.startswith("method grpo+edited: divergence.beta.kind constant -> linear, ")


def test_a_trained_model_takes_the_place_of_the_model(tiny: Path):
    experiment = with_model(load_experiment(tiny, ["stages.grpo.set.domain.sampling.max_new_tokens=3"]), "some/folder")
    assert experiment.domain.model == Pretrained(path="some/folder")
    assert experiment.domain.sampling.max_new_tokens == 3
    assert experiment.name == "tiny"


def test_a_trained_model_keeps_the_objective_of_its_run_and_the_reference_that_it_reads(tiny: Path):
    """A run with a reference of its own could not be evaluated or sampled from."""
    changes = ["method=grpo", "divergence.kind=k3", "divergence.beta=0.05", "reference.kind=ema"]
    experiment = load_experiment(tiny, [*changes, "stages=[]", "controls=null"])
    assert with_model(experiment, "some/folder").objective == experiment.spans[-1].objective


def test_a_run_that_could_not_begin_leaves_no_folder_and_one_that_was_there_stays(tiny: Path, tmp_path: Path):
    broken = load_experiment(tiny, ["train.metric=greedy/other"])
    with pytest.raises(ConfigError, match="is not a metric of this domain"):
        run(broken, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigError, match="is not a metric of this domain"):
        run(broken, tmp_path / "mine")
    assert (tmp_path / "mine").is_dir()
    assert not any((tmp_path / "mine").iterdir())


def test_a_folder_in_which_another_process_begins_meanwhile_stays_its_own(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two starts of one command at the same time: each finds no folder, and one of them writes its file first."""
    others = RunFolder(tmp_path / "run").config

    def other_process_first(folder: Path) -> None:
        check_new(folder)
        others.write_text("{}")

    check_new = run_folder.check_new
    monkeypatch.setattr(run_folder, "check_new", other_process_first)
    with pytest.raises(ConfigError, match="it holds a run already"):
        run(load_experiment(tiny), tmp_path / "run")
    assert others.read_text() == "{}"


def test_a_folder_that_another_process_has_locked_is_not_removed(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "locked", lambda folder: locked(folder, patience_seconds=0.0))
    folder, with_lock = RunFolder(tmp_path / "run"), ExitStack()
    connect = distributed.connect

    def other_process_first(*arguments: Any, **options: Any) -> Any:
        with_lock.enter_context(locked(folder))
        return connect(*arguments, **options)

    monkeypatch.setattr(distributed, "connect", other_process_first)
    with with_lock, pytest.raises(ConfigError, match="another process is training in it"):
        run(load_experiment(tiny), folder.path)
    assert folder.config.is_file()


@pytest.mark.slow
def test_a_reward_that_fails_in_the_first_evaluation_leaves_no_folder_and_later_the_way_on(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / "cache"))  # no other test's warm-up: its steps are counted
    changes = [
        "domain.rewards.own.kind=callable",
        f"domain.rewards.own.path={__name__}:fails",
        "track.console=lines",
        "train.evaluate_every=2",
    ]
    experiment = load_experiment(tiny, changes)
    FAILS_FROM[0] = 1
    with pytest.raises(RewardError, match="reward 'own' raised KeyError"):
        run(experiment, tmp_path / "run", controls=False)
    assert not (tmp_path / "run").exists()
    FAILS_FROM[0] = 3
    CALLS.clear()
    with pytest.raises(RewardError, match="reward 'own' raised KeyError"):
        run(experiment, tmp_path / "run", controls=False)
    sentence = (
        f"an error ended the run after step 2; `groupwise resume {tmp_path / 'run'} --run-code` goes on from step 1"
    )
    assert sentence in capsys.readouterr().out
    FAILS_FROM[0] = 1000
    assert resume(tmp_path / "run", run_code=True).summary["steps"] == 5
    ended = (tmp_path / "run" / "summary.json").read_bytes()
    again = resume(tmp_path / "run", run_code=True)
    assert (again.summary["steps"], again.before_step, again.after_step) == (5, 3, 5)
    assert (tmp_path / "run" / "summary.json").read_bytes() == ended, "a run that has ended is left as it is"


CALLS: list[int] = []
FAILS_FROM = [1]


def fails(completions: Sequence[str], **columns: object) -> list[float]:
    """A reward that fails from a certain call on."""
    CALLS.append(1)
    if len(CALLS) >= FAILS_FROM[0]:
        raise KeyError("answer")
    return [0.0] * len(completions)


def test_a_language_model_in_shards_is_opened_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(domain: str, *changes: str) -> tuple[str, bool]:
        built: Any = job_of(load_experiment(domain, list(changes))).build_domain(torch.device("cuda", 1))
        return built["device"], built.get("spreads", False)

    for domain in (
        "groupwise.domain.language.domain.LanguageDomain",
        "groupwise_images.diffusion.domain.DiffusionDomain",
    ):
        monkeypatch.setattr(domain, lambda config, **arguments: arguments)
    full = "train.sharding=full"
    assert opened("language", full) == ("cuda:1", False)  # one process has all weights
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert opened("language", full) == ("cpu", True)
    assert opened("language", "train.sharding=none") == ("cuda:1", False)
    assert opened("diffusion", full) == ("cuda:1", False)
    flash = "domain.model={kind='pretrained',path='x',attention='flash_attention_2'}"
    assert opened("language", full, flash) == ("cuda:1", False)


def test_a_domain_whose_weights_are_not_spread_is_told_before_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = load_experiment("selection", ["train.sharding=full"])
    monkeypatch.setattr(type(experiment.domain), "open", None)
    with pytest.raises(
        ConfigError, match=r'train.sharding = "full": the domain \'selection\' does not spread.* = none'
    ):
        open_domain(experiment, spreads=True)


# Another memory setting for a run that goes on, while a process trains in its folder.


def test_the_folder_of_a_process_that_trains_keeps_its_lock(tiny: Path, tmp_path: Path) -> None:
    """A new `config.json` is a file without the lock of the old one: two processes would train in one folder."""
    folder = RunFolder(tmp_path)
    write_json(folder.config, load_experiment(tiny).table())
    smaller = load_experiment(tiny, ["train.micro_batch_members=1"])
    refused = pytest.raises(ConfigError, match="another process is training in it")
    with locked(folder):
        with refused:
            check_same_settings(smaller, tmp_path, patience_seconds=0.0)
        with refused, locked(folder, patience_seconds=0.0):
            pytest.fail("let in")
        assert read_json(folder.config)["train"]["micro_batch_members"] is None
    assert check_same_settings(smaller, tmp_path) == ["goes on with train.micro_batch_members = 1, where it had None"]
    assert read_json(folder.config)["train"]["micro_batch_members"] == 1


def test_a_key_that_an_earlier_version_did_not_have_counts_as_it_is_by_default(tiny: Path, tmp_path: Path) -> None:
    """A cluster's queue starts the same command again after an update, and `resume` would go on."""
    table = load_experiment(tiny).table()
    del table["train"]["sharding"], table["optimiser"]["eps"]
    write_json(RunFolder(tmp_path).config, table)
    assert check_same_settings(load_experiment(tiny), tmp_path) == []
    with pytest.raises(ConfigError, match=r"optimiser\.eps = 0\.1 \(1e-08 there\)"):
        check_same_settings(load_experiment(tiny, ["optimiser.eps=0.1"]), tmp_path)


def test_a_run_of_another_version_is_told_as_such(tiny: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    write_json(folder.config, {"method": "grpo"})
    write_json(folder.environment, {"starts": [{"versions": {"groupwise": "0.1.0"}}]})
    with pytest.raises(ConfigError, match=r"was written by Groupwise 0\.1\.0"):
        check_same_settings(load_experiment(tiny), tmp_path)


@pytest.mark.parametrize("part", ["stages.grpo", "controls.supervised"])
def test_a_part_of_the_run_may_take_less_memory(tiny: Path, tmp_path: Path, part: str) -> None:
    folder = RunFolder(tmp_path)
    write_json(folder.config, load_experiment(tiny, [f"{part}.set.train.micro_batch_members=4"]).table())
    (sentence,) = check_same_settings(load_experiment(tiny, [f"{part}.set.train.micro_batch_members=1"]), tmp_path)
    assert sentence.endswith("set.train.micro_batch_members = 1, where it had 4")
    with pytest.raises(ConfigError, match="its run began with other settings"):
        check_same_settings(load_experiment(tiny, [f"{part}.set.train.group_size=3"]), tmp_path)
