"""Groups that grow while their rewards are all equal and shrink while they never are."""

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
    assert [rule.next(8, share) for share in (0.51, 0.5, 0.1, 0.09)] == [10, 8, 8, 4]
    assert rule.next(4, 0.0) == 3


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
    assert sizes(tmp_path / "busy") == [4, 2, 2, 2]


def test_bounds_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"minimum = 8 is above maximum = 4"):
        DynamicGroupSize(minimum=8, maximum=4)
    with pytest.raises(ValidationError, match="would grow and shrink at once"):
        DynamicGroupSize(shrink_below=0.6)
    with pytest.raises(ValidationError, match=r"train.group_size = 4 .* outside its bounds 8 to 16"):
        TrainConfig(group_size=4, dynamic_group_size=DynamicGroupSize(minimum=8, maximum=16))
