"""The last rewards of each prompt: saved with the run and passed to the objective."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tests.training.toy import ToyDomain, job, recipe

from groupwise.checkpoint import CheckpointConfig, CheckpointStore
from groupwise.track import read_metrics
from groupwise.training import resume, train
from groupwise.training.sampling import AdaptiveSampling
from groupwise.training.step.state import RewardHistory

TRACKED = {"advantage.kind": "per_prompt", "advantage.buffer_size": 6, "advantage.min_count": 4}


def test_the_newest_stay_and_come_last() -> None:
    history = RewardHistory(size=2)
    assert history.gain([(0, [1.0])]) == (0.0, 0)
    history.add([(0, [1.0, 2.0, 3.0]), (1, [])])
    assert history.rewards == {0: [2.0, 3.0]}
    assert history.gain([(0, [4.0]), (1, [1.0])]) == (1.5, 1)
    past = history.of([1, 0])
    assert torch.equal(past[1], torch.tensor([2.0, 3.0], dtype=torch.float64))
    assert past[0].isnan().all()
    assert RewardHistory.from_record(history.record()).rewards == history.rewards


def test_what_a_stage_needs() -> None:
    assert RewardHistory.needed(recipe()) == 0
    assert RewardHistory.needed(recipe(objective=TRACKED)) == 6
    assert RewardHistory.needed(recipe(objective=TRACKED, adaptive_sampling=AdaptiveSampling(memory=9))) == 9


def test_the_past_reaches_the_advantages_the_metrics_and_the_checkpoint(tmp_path: Path) -> None:
    """Two prompts, the same two every step; rewards 0, 1, 0, 1, ... and one more each step."""
    calls = [0]

    def reward(index: int, action: object) -> float:
        calls[0] += 1
        return float((calls[0] - 1) % 2 + (calls[0] - 1) // 8)

    stage = recipe(num_steps=3, prompts_per_step=2, objective=TRACKED)
    train(
        job(
            stage,
            domain=lambda device: ToyDomain(num_prompts=2, reward_of=reward),
            checkpoint=CheckpointConfig(every=1),
        ),
        tmp_path / "run",
    )
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "advantages_mean" in row]
    # Step 1: 0, 1, 0, 1 of each prompt, its own statistics (mean 1/2). Step 2: 1, 2, 1, 2 beside the newest past 0, 1:
    # mean 7/6, squares 17/6.
    assert rows[0]["advantages_mean"] == pytest.approx(0.0)
    assert rows[1]["advantages_mean"] == pytest.approx((1.5 - 7 / 6) / math.sqrt(17 / 36))
    assert "history/gain" not in rows[0]
    assert [row["history/gain"] for row in rows[1:]] == pytest.approx([1.0, 2.5 - 7 / 6])
    assert rows[2]["history/num_prompts"] == 2
    latest = CheckpointStore(tmp_path / "run" / "checkpoints", CheckpointConfig()).latest()
    assert latest is not None
    assert latest.load()["history"]["rewards"] == {
        "0": [1.0, 2.0, 2.0, 3.0, 2.0, 3.0],
        "1": [1.0, 2.0, 2.0, 3.0, 2.0, 3.0],
    }


def test_a_run_that_was_cut_off_goes_on_with_the_past(tmp_path: Path) -> None:
    import shutil

    stage = recipe(num_steps=5, objective=TRACKED, adaptive_sampling=AdaptiveSampling(threshold=0.5))
    history_job = job(stage, checkpoint=CheckpointConfig(every=1))
    train(history_job, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    for folder in (tmp_path / "cut" / "checkpoints").iterdir():
        if folder.name not in ("step-3", "step-4"):
            shutil.rmtree(folder)
    for folder in (tmp_path / "cut" / "checkpoints").glob("step-4"):
        shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "cut" / "model")
    (tmp_path / "cut" / "summary.json").unlink()
    resume(history_job, tmp_path / "cut")
    assert (tmp_path / "cut" / "model" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model" / "model.safetensors"
    ).read_bytes()
