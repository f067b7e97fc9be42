"""Groups that grow while their rewards say little and shrink while all of them say something."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.training.toy import ToyDomain, cut_back, job, recipe

from groupwise.checkpoint import CheckpointConfig
from groupwise.track import read_metrics
from groupwise.training.config import TrainConfig
from groupwise.training.run.launch import resume, train
from groupwise.training.sampling import DynamicGroupSize


def sizes(path: Path) -> list[float]:
    return [row["group_size"] for row in read_metrics(path / "metrics.jsonl") if "group_size" in row]


def test_between_the_shares_nothing_moves_and_bounds_hold() -> None:
    rule = DynamicGroupSize(minimum=3, maximum=10, grow_above=0.5, shrink_below=0.1)
    flat, mixed, late = [1.0] * 4, [0.0, 1.0] * 2, [0.0, 0.0, 1.0, 1.0]
    assert [rule.next(8, [flat] * n + [mixed] * (10 - n)) for n in (6, 5, 1, 0)] == [10, 8, 8, 4]
    assert rule.next(4, [mixed]) == 3
    assert rule.next(8, [mixed, late]) == 8, "half of their members would be flat in one of two groups"
    assert rule.next(8, [mixed], flat_share=0.6) == 10
    # A group of 0 and 1 is narrow only where all are equal, one of sizes below half of the widest mean range.
    assert rule.narrow_share([flat, mixed, late], widest=1.0) == pytest.approx(1 / 3)
    sizes = [[-700.0, -700.0], [-700.0, -695.1], [-700.0, -695.0], [-720.0, -700.0]]
    assert rule.narrow_share(sizes, widest=10.0) == 0.5
    assert DynamicGroupSize(narrow=0).narrow_share(sizes, widest=10.0) == 0.25


def test_groups_grow_where_they_are_flat_and_shrink_where_none_is_also_after_a_resume(tmp_path: Path) -> None:
    stage = recipe(num_steps=4, dynamic_group_size=DynamicGroupSize(minimum=2, maximum=16))
    every = CheckpointConfig(every=1, keep_last=9)
    flat = job(stage, domain=lambda device: ToyDomain(reward_of=lambda index, action: 1.0), checkpoint=every)
    train(flat, tmp_path / "flat")
    assert sizes(tmp_path / "flat") == [4, 8, 16, 16]
    resume(flat, cut_back(tmp_path / "flat", 2))
    assert sizes(tmp_path / "flat") == [4, 8, 16, 16]
    numbers = itertools.count()
    busy = job(stage, domain=lambda device: ToyDomain(reward_of=lambda index, action: float(next(numbers))))
    train(busy, tmp_path / "busy")
    assert sizes(tmp_path / "busy") == [4, 4, 4, 4], "half a group of evenly spaced rewards is narrow"


def test_a_continuous_reward_grows_groups_where_its_spread_falls_also_after_a_resume(tmp_path: Path) -> None:
    """No group is ever flat; in steps 1 and 2 its rewards lie 3 apart, later .2."""
    calls = [0]

    def reward(index: int, action: object) -> float:
        calls[0] += 1
        return -700 + 10 * index + (calls[0] % 2) * (3.0 if calls[0] <= 12 else 0.2)

    stage = recipe(num_steps=5, prompts_per_step=2, dynamic_group_size=DynamicGroupSize(minimum=2, maximum=16))
    falling = job(
        stage, domain=lambda device: ToyDomain(reward_of=reward), checkpoint=CheckpointConfig(every=1, keep_last=9)
    )
    train(falling, tmp_path / "run")
    assert sizes(tmp_path / "run") == [4, 2, 2, 4, 8]
    narrow = [row["groups/narrow"] for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if row["step"]]
    assert narrow == [0, 0, 1, 1, 1]
    resume(falling, cut_back(tmp_path / "run", 3))
    assert sizes(tmp_path / "run") == [4, 2, 2, 4, 8]


def test_bounds_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"minimum = 8 is above maximum = 4"):
        DynamicGroupSize(minimum=8, maximum=4)
    with pytest.raises(ValidationError, match="would grow and shrink at once"):
        DynamicGroupSize(shrink_below=0.6)
    with pytest.raises(ValidationError, match=r"train.group_size = 4 .* outside its bounds 8 to 16"):
        TrainConfig(group_size=4, dynamic_group_size=DynamicGroupSize(minimum=8, maximum=16))
