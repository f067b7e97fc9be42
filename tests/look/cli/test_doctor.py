"""`doctor`: what the rules see in runs that were really trained, finished, damaged or cut short."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.look.diagnosis.planted import grpo, toy
from tests.training.toy import ToyDomain


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which nothing was rewarded."""
    folder = tmp_path_factory.mktemp("runs") / "flat"
    toy(grpo(), domain=lambda: ToyDomain(reward_of=lambda index, actions: 0.0))(folder)
    return folder


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "healthy"
    toy(grpo("grpo", rate=0.01))(folder)
    return folder


def test_findings_come_with_evidence_meaning_and_remedy(groupwise, flat: Path):
    ended = groupwise("doctor", flat)
    assert ended.status == 3
    lines = [line.strip() for line in ended.out.splitlines()]
    place = lines.index("fault all_flat: seen from step 20 of stage grpo, and it holds to the end")
    assert lines[place + 1] == "100% of the groups of the last 20 steps had equal rewards (mean reward 0)."
    assert lines[place + 2] == "frac_reward_zero_std, steps 11 to 30: mean 1 (1 1 1 1 1 1)"
    assert "It means: In a flat group all members earn the same" in ended.out
    assert "To do: Take easier or harder prompts" in ended.out


def test_a_healthy_run_ends_with_zero_and_explains_its_loss(groupwise, healthy: Path):
    ended = groupwise("doctor", healthy)
    assert ended.status == 0
    assert "note loss_zero" in ended.out
    assert "Nothing wrong found in 31 rows." in ended.out


def test_several_runs_as_json(groupwise, flat: Path, healthy: Path):
    ended = groupwise("doctor", healthy, flat, "--json")
    assert ended.status == 3
    first, second = json.loads(ended.out)["runs"]
    assert (first["state"], first["steps"], [found["rule"] for found in first["findings"]]) == (
        "finished",
        30,
        ["loss_zero"],
    )
    assert [found["rule"] for found in second["findings"]] == ["reward_constant", "all_flat", "no_update"]
    evidence = second["findings"][1]["evidence"][0]
    assert (evidence["metric"], evidence["mean"], evidence["steps"][0], evidence["steps"][-1]) == (
        "frac_reward_zero_std",
        1.0,
        11,
        30,
    )
    assert "all_truncated" in second["not_judged"]


def test_a_folder_of_runs_is_read_run_by_run(groupwise, flat: Path, healthy: Path, tmp_path: Path):
    for name, run in (("a", flat), ("b", healthy)):
        shutil.copytree(run, tmp_path / "runs" / name)
    assert [
        Path(run["run"]).name for run in json.loads(groupwise("doctor", tmp_path / "runs", "--json").out)["runs"]
    ] == ["a", "b"]


def test_a_damaged_run_is_read_as_far_as_it_goes(groupwise, flat: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(flat, run)
    (run / "config.json").unlink()
    (run / "summary.json").unlink()
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text("no row\n" + text[:-20])
    ended = groupwise("doctor", run)
    assert ended.status == 3
    assert "fault all_flat" in ended.out
    assert "missing: metrics.jsonl: line 1 is no JSON object and is left out" in ended.out
    assert "missing: metrics.jsonl: the last line is cut off and is left out" in ended.out
    assert "config.json is not there" in ended.out
