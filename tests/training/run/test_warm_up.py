"""A run that starts from the warm-up of another one ends as if it had done the warm-up itself."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.training.toy import ToyDomain, cut_back, job, recipe, saved_model, supervised

from groupwise.checkpoint import CheckpointConfig, CheckpointStore, StorageError
from groupwise.config import ConfigError
from groupwise.track import TrackConfig, depends_on_machine, read_metrics
from groupwise.training.job import Job
from groupwise.training.run.launch import resume, train
from groupwise.training.run.stages import read_warm_up

LINES = TrackConfig(console="lines")
BETA = {"divergence.beta": {"kind": "adaptive", "initial": 0.3, "target": 0.05}}


def with_dropout(device: object) -> ToyDomain:
    return ToyDomain(dropout=0.2)


def stages(method: str = "dapo", **objective: Any) -> list[Any]:
    chosen = recipe("policy", method, objective=objective or None, num_steps=3)
    return [supervised(num_steps=4, weight_average={"decay": 0.9}), chosen]


def toy(*recipes: Any, **settings: Any) -> Job:
    return job(*recipes, **{"domain": with_dropout, **settings})


def rows_after(run: Path, step: int) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if not depends_on_machine(name)}
        for row in read_metrics(run / "metrics.jsonl")
        if row["step"] > step
    ]


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four supervised steps and one of another method."""
    folder = tmp_path_factory.mktemp("start") / "donor"
    train(toy(*stages()[:1], recipe("first", num_steps=1)), folder)
    return folder


def test_a_run_that_starts_from_a_warm_up_ends_as_if_it_had_done_it(donor: Path, tmp_path: Path) -> None:
    recipes = stages("grpo", **BETA)
    uninterrupted = train(toy(*recipes), tmp_path / "alone")
    started = train(toy(*recipes, start=str(donor)), tmp_path / "started")
    assert saved_model(tmp_path / "started") == saved_model(tmp_path / "alone")
    assert rows_after(tmp_path / "started", 4) == rows_after(tmp_path / "alone", 4)
    for name in ("before", "after", "steps"):
        assert started.summary[name] == uninterrupted.summary[name]
    assert [row["step"] for row in read_metrics(tmp_path / "started" / "metrics.jsonl")] == [4, 5, 6, 7]
    # Only a run that did a warm-up holds one.
    assert (tmp_path / "alone" / "warm_up").is_dir()
    assert not (tmp_path / "started" / "warm_up").exists()


@pytest.mark.slow
def test_a_stage_of_another_name_and_an_absent_one(donor: Path, tmp_path: Path) -> None:
    train(toy(supervised("more", num_steps=2), stages()[1], start=str(donor)), tmp_path / "more")
    assert [row["stage"] for row in rows_after(tmp_path / "more", 4)] == ["more"] * 2 + ["policy"] * 3
    assert read_warm_up(str(tmp_path / "more"))["progress"]["step"] == 6
    train(toy(stages()[1], start=str(donor)), tmp_path / "none")
    assert [row["stage"] for row in rows_after(tmp_path / "none", 4)] == ["policy"] * 3


def test_a_killed_run_goes_on_without_the_run_that_it_started_from(donor: Path, tmp_path: Path) -> None:
    path, start = tmp_path / "run", tmp_path / "start"
    shutil.copytree(donor, start)
    chosen = toy(*stages(), start=str(start), checkpoint=CheckpointConfig(every=1, keep_last=9))
    train(chosen, path)
    expected = saved_model(path)
    shutil.rmtree(start)
    resume(chosen, cut_back(path, 5))
    assert saved_model(path) == expected


@pytest.mark.slow
def test_a_run_of_supervised_stages_alone_can_be_started_from(donor: Path, tmp_path: Path) -> None:
    train(toy(stages()[0]), tmp_path / "warm")
    train(toy(*stages(), start=str(tmp_path / "warm")), tmp_path / "a")
    train(toy(*stages(), start=str(donor)), tmp_path / "b")
    assert saved_model(tmp_path / "a") == saved_model(tmp_path / "b")


def test_what_cannot_be_started_from_is_refused_in_one_line(donor: Path, tmp_path: Path) -> None:
    def refused(match: str, *recipes: Any, **settings: Any) -> None:
        with pytest.raises(ConfigError, match=match) as error:
            train(toy(*(recipes or stages()), **settings), tmp_path / "refused")
        assert "\n" not in str(error.value)
        shutil.rmtree(tmp_path / "refused", ignore_errors=True)

    refused("no run is there", start=str(tmp_path / "nowhere"))
    refused("has done every stage", stages()[0], start=str(donor))
    refused("do not fit the model", start=str(donor), domain=lambda device: ToyDomain(num_prompts=5))

    class Spanish(ToyDomain):
        vocabulary = "es"

    refused("tokenizer has other words", start=str(donor), domain=lambda device: Spanish(dropout=0.2))
    train(toy(stages()[1]), tmp_path / "without")
    refused("holds no warm-up", start=str(tmp_path / "without"))
    damaged = tmp_path / "damaged"
    shutil.copytree(donor, damaged)
    for file in (damaged / "warm_up" / "step-4").iterdir():
        file.write_bytes(file.read_bytes()[:-3])
    refused("holds no warm-up", start=str(damaged))


def test_a_warm_up_that_cannot_be_written_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save = CheckpointStore.save

    def full(store: CheckpointStore, *args: Any, **settings: Any) -> Path:
        if store.folder.name == "warm_up":
            raise StorageError("the disk is full.")
        return save(store, *args, **settings)

    monkeypatch.setattr(CheckpointStore, "save", full)
    result = train(toy(*stages(), track=LINES), tmp_path / "run")
    assert result.summary["steps"] == 7
    assert "no other run can start from this warm-up" in capsys.readouterr().out
