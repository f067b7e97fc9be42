"""`doctor`: what the rules see in a run."""

from __future__ import annotations

import json
from pathlib import Path


def test_findings_come_with_advice(groupwise, tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    rows = [{"step": step, "frac_reward_zero_std": 1.0, "reward": 0.0} for step in range(25)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ended = groupwise("doctor", tmp_path)
    assert ended.status == 0
    assert "all_flat (step 24)" in ended.out
    assert "they teach nothing" in ended.out


def test_a_short_run_is_not_judged(groupwise, finished: Path):
    assert "the rules judge the last 20" in groupwise("doctor", finished).out
