"""Whole runs of the toy domain: what they leave, when they stop, what they reuse."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tests.training.toy import QUIET, ToyDomain, cut_back, job, recipe, saved_model, supervised

from groupwise.checkpoint import CheckpointConfig, CheckpointStore, StorageError
from groupwise.config import ConfigError
from groupwise.processor import processor
from groupwise.reference import QualityGateReference
from groupwise.reward.scoring.table import RewardEvent
from groupwise.runs import RunFolder
from groupwise.track import MetricsFile, TrackConfig, read_metrics
from groupwise.training.config import EarlyStopping
from groupwise.training.run.launch import _resume, resume, train
from groupwise.training.run.run_folder import locked


def rows(path: Path) -> list[dict[str, Any]]:
    return list(read_metrics(path / "metrics.jsonl"))


LINES = job(recipe(num_steps=2), track=TrackConfig(console="lines"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps that has ended."""
    return train(LINES, tmp_path_factory.mktemp("finished") / "run").folder.path


@pytest.fixture
def ended_early(finished: Path, tmp_path: Path) -> Path:
    """A copy of it that lacks its summary, so that it can be resumed."""
    path = shutil.copytree(finished, tmp_path / "run")
    (path / "summary.json").unlink()
    return path


def test_what_a_run_leaves(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(job(recipe(num_steps=4, evaluate_every=2), checkpoint=CheckpointConfig(model_every=2, keep_best=False)), path)
    assert json.loads((path / "config.json").read_text()) == {"name": "toy", "seed": 0}
    started = json.loads((path / "environment.json").read_text())["starts"]
    assert started[0]["seed"] == 0
    assert started[0]["num_threads"] == 1
    assert [row["step"] for row in rows(path)] == [0, 1, 2, 3, 4]
    assert [row["step"] for row in rows(path) if "eval/accuracy" in row] == [0, 2, 4]
    files = ["config.json", "environment.json", "metrics.jsonl", "summary.json"]
    assert {entry.name for entry in path.iterdir()} == {*files, "checkpoints", "model", "models", "rollouts"}
    summary = json.loads((path / "summary.json").read_text())
    assert list(summary) == ["metric", "before", "after", "baseline", "seconds", "steps", "seed"]
    assert {"setup", "evaluation", "sampling", "rewards", "update", "checkpoint"} <= set(summary["seconds"])
    assert sorted(entry.name for entry in (path / "rollouts").iterdir()) == [
        *(f"evaluation-{step}.jsonl" for step in (0, 2, 4)),
        *(f"step-{step}.jsonl" for step in (1, 2, 4)),
    ]
    member = json.loads((path / "rollouts" / "step-1.jsonl").read_text().splitlines()[0])
    assert set(member) == {"prompt", "text", "group", "rewards", "reward", "advantage", "num_decisions", "log_ratio"}
    assert (
        load_file(path / "model" / "model.safetensors").keys()
        == load_file(path / "models" / "step-2" / "model.safetensors").keys()
    )


def test_a_folder_that_holds_something_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    train(job(recipe(num_steps=1)), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"holds a run already; write `groupwise resume .*--out NEW"):
        train(job(domain=pytest.fail), tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("do not touch")
    with pytest.raises(ConfigError, match="not empty and holds no run"):
        train(job(domain=pytest.fail), tmp_path / "other")
    with pytest.raises(ConfigError, match="holds no run"):
        resume(job(), tmp_path / "nowhere")


def test_an_unwritable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be written|a file of that name"):
        train(job(domain=pytest.fail), tmp_path / "file" / "run")
    with pytest.raises(ConfigError, match="a file of that name exists"):
        train(job(domain=pytest.fail), tmp_path / "file")


def test_a_domain_that_saves_nothing_is_told_and_its_weights_stay_in_the_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "run"

    class Forgetful(ToyDomain):
        def save(self, folder: Path) -> None:
            return

    with pytest.raises(ConfigError, match=r"^Forgetful\.save wrote nothing into the folder.*in the checkpoints alone"):
        train(job(recipe(num_steps=2), domain=lambda device: Forgetful()), path)
    assert not (path / "model").exists()
    resume(job(recipe(num_steps=2)), path)
    assert (path / "model").is_dir()


def test_controls_start_where_the_policy_started(tmp_path: Path) -> None:
    path = tmp_path / "run"
    stages = [supervised(num_steps=5), recipe("policy", num_steps=6)]
    controls = {"supervised": [supervised("more")], "other": [recipe("slow", rate=1e-9)]}
    result = train(job(*stages, controls=controls), path)
    control = json.loads((path / "controls" / "supervised" / "summary.json").read_text())
    assert result.summary["baseline"] == control["after"]
    assert control["before"] == result.summary["before"]
    assert json.loads((path / "controls" / "other" / "summary.json").read_text())["after"] == result.summary["before"]
    assert min(row["step"] for row in rows(path / "controls" / "supervised")) == 6
    assert not (path / "checkpoints" / "start").exists()


def test_ctrl_c_ends_with_a_checkpoint_and_resume_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    train(job(recipe(num_steps=6)), tmp_path / "whole")

    class Interrupting(ToyDomain):
        def reward(self, samples: Any) -> Any:
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls == 3:
                os.kill(os.getpid(), signal.SIGINT)
            return super().reward(samples)

    path = tmp_path / "cut"
    result = train(job(recipe(num_steps=6), domain=lambda device: Interrupting()), path)
    assert result.interrupted
    latest = CheckpointStore(path / "checkpoints", CheckpointConfig()).latest()
    assert latest is not None
    assert latest.step == 3
    assert not resume(job(recipe(num_steps=6)), path).interrupted
    assert saved_model(path) == saved_model(tmp_path / "whole")


def test_time_ends_a_stage(tmp_path: Path) -> None:
    assert train(job(recipe(num_steps=10**6, max_seconds=0.05)), tmp_path / "run").summary["steps"] < 1000


SEEN: list[tuple[int, float]] = []


def remember(step: int, metrics: Mapping[str, float]) -> bool:
    SEEN.append((step, metrics["reward"]))
    return step == 3


def test_callbacks_see_every_step_and_can_end_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(os)("callback_of_a_user")
    module.remember = remember  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "callback_of_a_user", module)
    SEEN.clear()
    assert (
        train(job(recipe(num_steps=9, callbacks=["callback_of_a_user:remember"])), tmp_path / "run").summary["steps"]
        == 3
    )
    assert [step for step, _ in SEEN] == [1, 2, 3]


def test_a_callback_that_raises_is_named_and_the_run_goes_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "callback_that_raises.py").write_text("def broken(step, metrics):\n    return 0 / (2 - step)\n")
    monkeypatch.chdir(tmp_path)
    broken = recipe(num_steps=3, callbacks=["callback_that_raises:broken"])
    message = (
        r'"callback_that_raises:broken" raised ZeroDivisionError: division by zero \(at callback_that_raises.py:2 in'
        r" broken\); mend it"
    )
    with pytest.raises(ValueError, match=message):
        train(job(broken, checkpoint=CheckpointConfig(every=1)), tmp_path / "run")
    assert resume(job(recipe(num_steps=3)), tmp_path / "run").summary["steps"] == 3


def test_the_best_model_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(job(recipe(num_steps=8, evaluate_every=1, rate=0.2)), path)
    scores = [row["eval/accuracy"] for row in rows(path)]
    best = scores.index(max(scores))
    assert best > 0
    checkpoints = CheckpointStore(path / "checkpoints", CheckpointConfig()).complete()
    assert [checkpoint.step for checkpoint in checkpoints if checkpoint.best][-1] == best
    saved = load_file(path / "best" / "model.safetensors")
    best_weights = next(checkpoint for checkpoint in checkpoints if checkpoint.step == best).load()["learner"][
        "weights"
    ]
    assert all((saved[name] == best_weights[name]).all() for name in saved)


def test_skipped_updates_are_counted_and_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flat = lambda device: ToyDomain(reward_of=lambda index, action: 1.0)  # noqa: E731
    train(job(recipe(num_steps=8, patience=3), domain=flat, track=TrackConfig(console="lines")), tmp_path / "run")
    assert capsys.readouterr().out.count("updates in a row had nothing to learn from") == 1
    assert sum(row.get("updates/skipped", 0) for row in rows(tmp_path / "run")) == 8


def test_what_became_of_data_and_rewards_is_said_once_and_the_domain_is_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Worn(ToyDomain):
        remarks = ("data: 3 prompts are left out",)

        def reward(self, samples: Any) -> Any:
            event = RewardEvent("timeout", "right", count=2, detail="longer than 5 s")
            return replace(super().reward(samples), events=(event,))

    toy = Worn()
    train(job(recipe(num_steps=3), domain=lambda device: toy, track=TrackConfig(console="lines")), tmp_path / "run")
    printed = capsys.readouterr().out
    assert printed.count("data: 3 prompts are left out") == 1
    assert (
        printed.count(
            "step 1: reward 'right': timeout for 2 of 16 members, longer than 5 s; later ones are only counted"
        )
        == 1
    )
    assert printed.count("timeout") == 1
    assert [row.get("rewards/right/num_timeout") for row in rows(tmp_path / "run")] == [None, 2, 2, 2]
    assert toy.closed


def test_what_went_wrong_in_an_evaluation_is_counted_and_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Worn(ToyDomain):
        def evaluate(self, *, streams: Any) -> Any:
            events = [
                RewardEvent("timeout", "judge", count=3, detail="longer than 5 s"),
                RewardEvent("timeout", "judge", count=1),
            ]
            return replace(super().evaluate(streams=streams), events=events)

    train(
        job(recipe(num_steps=2, evaluate_every=1), domain=lambda device: Worn(), track=TrackConfig(console="lines")),
        tmp_path / "run",
    )
    said = (
        "step 0, evaluation: reward 'judge': timeout for 4 samples, longer than 5 s; they are left out of its mean;"
        " later ones are only counted"
    )
    printed = capsys.readouterr().out
    assert printed.count(said) == 1
    assert printed.count("timeout") == 1
    assert [row.get("eval/rewards/judge/num_timeout") for row in rows(tmp_path / "run")] == [4, 4, 4]


def test_lost_rows_are_named_and_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    chosen = job(recipe(num_steps=4), checkpoint=CheckpointConfig(every=1), track=TrackConfig(console="lines"))
    train(chosen, path)
    (path / "summary.json").unlink()
    text = (path / "metrics.jsonl").read_text()
    (path / "metrics.jsonl").write_text("".join(text.splitlines(keepends=True)[:3])[:-5])
    resume(chosen, path)
    assert "rows up to step 4 are lost" in capsys.readouterr().out
    assert [row["step"] for row in rows(path)] == [0, 1]


def test_another_number_of_processes_is_said_at_resume(ended_early: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = ended_early
    store = CheckpointStore(path / "checkpoints", CheckpointConfig())
    latest = store.latest()
    assert latest is not None
    record = latest.load()
    resume(LINES, path)
    assert "bit for bit" not in capsys.readouterr().out
    (path / "summary.json").unlink()
    store.save(latest.step, {**record, "generators": record["generators"] * 2})
    resume(LINES, path)
    assert "the checkpoint is of 2 processes and this is a run of 1" in capsys.readouterr().out


def test_another_torch_or_processor_is_said_at_resume_and_a_spoilt_record_of_starts_is_no_reason_to_stop(
    ended_early: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ended_early
    record = json.loads((path / "environment.json").read_text())
    record["starts"][0]["versions"]["torch"] = "2.0.0"
    record["starts"][0]["processor"] = "nobody has it, AVX2"
    (path / "environment.json").write_text(json.dumps(record))
    resume(LINES, path)
    differs = (
        f"this start differs from the one before (processor nobody has it, AVX2 -> {processor()}, torch 2.0.0 ->"
        f" {version('torch')}): the run goes on, "
    )
    assert f"{differs}but may not repeat" in capsys.readouterr().out
    assert len(json.loads((path / "environment.json").read_text())["starts"]) == 2
    (path / "environment.json").write_text('{"starts": [{"versi')
    (path / "summary.json").unlink()
    resume(LINES, path)
    assert len(json.loads((path / "environment.json").read_text())["starts"]) == 1


def test_a_configuration_that_was_edited_between_two_starts_is_said(
    ended_early: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ended_early
    resume(LINES, path)
    # What is read from the file may state more than the file does.
    (path / "summary.json").unlink()
    resume(
        replace(LINES, resolved={**LINES.resolved, "stages": [{"set": {"domain": {"kind": "toy"}}}]}),
        path,
    )
    assert "was changed" not in capsys.readouterr().out
    (path / "summary.json").unlink()
    written = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**written, "train": {"group_size": 5}}))
    resume(LINES, path)
    assert (
        f"{path}/config.json was changed since the start before: the run goes on by what it says now"
        in capsys.readouterr().out
    )


def test_two_processes_never_train_in_one_folder(ended_early: Path, tmp_path: Path) -> None:
    path = ended_early
    with (
        locked(RunFolder(path)),
        pytest.raises(ConfigError, match="another process is training in it"),
        locked(RunFolder(path), patience_seconds=0.2),
    ):
        pytest.fail("let in")
    # The one that trains holds the folder while it does.
    asked_flags: list[bool] = []

    class Looks(ToyDomain):
        def evaluate(self, *, streams: Any) -> Any:
            with pytest.raises(ConfigError), locked(RunFolder(tmp_path / "other"), patience_seconds=0.0):
                asked_flags.append(False)
            asked_flags.append(True)
            return super().evaluate(streams=streams)

    train(job(recipe(num_steps=1), domain=lambda device: Looks()), tmp_path / "other")
    assert asked_flags == [True, True]
    assert resume(LINES, path).summary["steps"] == 2


class Measured(ToyDomain):
    """Its held-out metric is given by the test, one value an evaluation."""

    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self.values = list(values)

    def evaluate(self, *, streams: Any) -> Any:
        return replace(super().evaluate(streams=streams), metrics={"accuracy": self.values.pop(0)})


def test_under_less_is_better_the_gate_refuses_what_got_worse(tmp_path: Path) -> None:
    gate = QualityGateReference(sync_steps=1, alpha=1.0, margin=0.05)
    chosen = recipe(method="grpo", num_steps=3, metric_goal="min")
    # Before the run; the policy and the reference in each step; after the run.
    values = [1.0, 0.5, 1.0, 0.54, 0.5, 0.56, 0.5, 0.4]
    train(job(replace(chosen, reference=gate), domain=lambda device: Measured(values)), tmp_path / "run")
    steps = [row for row in rows(tmp_path / "run") if row["step"]]
    assert [row["reference/mixed"] for row in steps] == [1.0, 1.0, 0.0]
    assert [row["reference/policy_score"] for row in steps] == [0.5, 0.54, 0.56]
    assert [row["reference/score"] for row in steps] == [1.0, 0.5, 0.5]
    assert [row.get("eval/accuracy") for row in rows(tmp_path / "run")] == [1.0, None, None, 0.4]


def test_small_gains_add_up_before_early_stopping(tmp_path: Path) -> None:
    values = [0.10, 0.16, 0.22, 0.28, 0.34, 0.34, 0.34, 0.34, 0.34, 0.34]
    chosen = recipe(num_steps=9, evaluate_every=1, early_stopping=EarlyStopping(patience=3, min_gain=0.1))
    train(job(chosen, domain=lambda device: Measured(values)), tmp_path / "run")
    # Gains count at 0.22 and 0.34 (step 4); three evaluations without one end the stage.
    assert rows(tmp_path / "run")[-1]["step"] == 7


def test_a_full_disk_says_what_is_kept_and_resume_goes_on(disk: Path) -> None:
    chosen = job(recipe(num_steps=4), checkpoint=CheckpointConfig(every=1), track=QUIET)

    class Filling(ToyDomain):
        def reward(self, samples: Any) -> Any:
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls == 3:
                with (disk / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * 1024)
            return super().reward(samples)

    filled = job(*chosen.recipes, domain=lambda device: Filling(), checkpoint=chosen.checkpoint)
    with pytest.raises(
        StorageError, match=r"no space is left.*step-2 is complete; nothing before step 2 is lost.*groupwise resume"
    ):
        train(filled, disk / "run")
    (disk / "ballast").unlink()
    assert resume(chosen, disk / "run").summary["steps"] == 4
    assert [row["step"] for row in rows(disk / "run")] == [0, 1, 2, 3, 4]


def test_schedules_of_a_second_stage_start_at_their_start_and_draws_stay_distinct(tmp_path: Path) -> None:
    class Shown(ToyDomain):
        def demonstrations(self, size: int, *, streams: Any, step: int) -> Any:
            steps.append(step)
            return super().demonstrations(size, streams=streams, step=step)

    steps: list[int] = []
    fading = {"kind": "linear", "start": 1.0, "end": 0.5, "num_steps": 2}
    first = recipe("first", num_steps=3, updates_per_batch=2, objective={"auxiliary.supervised": 1.0})
    second = recipe("second", num_steps=3, objective={"auxiliary.supervised": fading})
    chosen = job(first, second, domain=lambda device: Shown(), checkpoint=CheckpointConfig(every=1, keep_every=1))
    train(chosen, tmp_path / "run")
    found = rows(tmp_path / "run")
    assert [row["lambda_sup"] for row in found[1:]] == [1.0, 1.0, 1.0, 1.0, 0.75, 0.5]
    # Two draws are of the check before the first step.
    assert steps[2:] == list(range(9))
    weights = saved_model(tmp_path / "run")
    path = shutil.copytree(tmp_path / "run", tmp_path / "again")
    resume(chosen, cut_back(path, 3))
    assert saved_model(path) == weights
    assert [row["lambda_sup"] for row in rows(path)[1:]] == [row["lambda_sup"] for row in found[1:]]


def test_rows_are_on_the_disk_before_the_checkpoint_that_counts_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    sync, keep = MetricsFile.sync, CheckpointStore.save
    monkeypatch.setattr(MetricsFile, "sync", lambda file: (calls.append("sync"), sync(file))[1])
    monkeypatch.setattr(
        CheckpointStore, "save", lambda *args, **settings: (calls.append("save"), keep(*args, **settings))[1]
    )
    train(job(recipe(num_steps=1)), tmp_path / "run")
    assert calls == ["sync", "save"] * 2


def test_a_process_that_a_launcher_started_alone_goes_on_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in shards would be refused without the launcher."""
    folder = RunFolder(Path("runs/one"))
    assert _resume(folder, job(recipe())) == "`groupwise resume runs/one`"
    for name, value in (("WORLD_SIZE", "1"), ("RANK", "0"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "29500")):
        monkeypatch.setenv(name, value)
    assert _resume(folder, job(recipe())) == "`torchrun ... -m groupwise resume runs/one`"


def test_failures_are_counted_over_the_members_of_all_rounds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    class Failing(ToyDomain):
        def reward(self, samples: Any) -> Any:
            return replace(super().reward(samples), events=(RewardEvent("missing", "right", count=len(samples)),))

    toy = Failing(num_prompts=24, reward_of=lambda index, action: 0.0 if index % 2 else float(action[0] % 2))
    chosen = recipe(objective={"admission.kind": "resample", "admission.max_rounds": 8}, group_size=8, num_steps=1)
    train(job(chosen, domain=lambda device: toy, track=TrackConfig(console="lines")), tmp_path / "run")
    (row,) = [row for row in rows(tmp_path / "run") if "num_rounds" in row]
    assert row["num_rounds"] > 1
    drawn = int(row["num_prompts_drawn"] * 8)
    assert f"step 1: reward 'right': missing for {drawn} of {drawn} members" in capsys.readouterr().out
