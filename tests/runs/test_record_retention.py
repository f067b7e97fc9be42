"""A run of which older rollouts were left out, as its folder tells it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.runs import read_run
from groupwise.training.run.run_folder import remove_old_records
from groupwise_look.report.groups import browse, scan


@pytest.mark.parametrize(("keep", "whole_from"), [(4, 370), (None, None), (400, None), ("all", None)])
def test_a_page_shows_groups_of_what_is_left_and_from_where_it_is_whole(
    tmp_path: Path, keep: object, whole_from: int | None
) -> None:
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "config.json").write_text(json.dumps({"name": "long", "track": {"keep_records": keep}}))
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": step, "reward": 0.5}) + "\n" for step in range(1, 401))
    )
    for step in range(10, 401, 10):
        members = [
            {
                "prompt": f"of {step}",
                "group": 0,
                "reward": float(member),
                "rewards": {"right": float(member)},
                "advantage": 0.5,
            }
            for member in (0, 1)
        ]
        (tmp_path / "rollouts" / f"step-{step}.jsonl").write_text(
            "".join(json.dumps(member) + "\n" for member in members)
        )
    if isinstance(keep, int):
        remove_old_records(tmp_path / "rollouts", "step", keep)
    run = read_run(tmp_path)
    left = [10, 130, 260, 370, 380, 390, 400] if keep == 4 else list(range(10, 401, 10))
    assert list(run.rollouts) == left
    browser_data = browse(run, scan(run), most_groups=100, text_bytes=10**6, picture_bytes=10**6)
    assert [group["step"] for group in browser_data["groups"]] == left
    assert (
        browser_data["counts"]["steps"],
        browser_data["counts"]["of_steps"],
        browser_data["counts"]["whole_from"],
    ) == (
        len(left),
        400,
        whole_from,
    )
