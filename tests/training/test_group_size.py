"""Groups that grow while their rewards are all equal and shrink while they never are."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.training.toy import ToyDomain, job, recipe

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


def test_a_policy_whose_groups_are_flat_gets_larger_ones_and_one_that_never_is_smaller_ones(tmp_path: Path) -> None:
    rule = {"dynamic_group_size": DynamicGroupSize(minimum=2, maximum=16)}
    train(
        job(recipe(num_steps=4, **rule), domain=lambda device: ToyDomain(reward_of=lambda index, action: 1.0)),
        tmp_path / "flat",
    )
    assert sizes(tmp_path / "flat") == [4, 8, 16, 16]
    calls: list[int] = []
    train(
        job(
            recipe(num_steps=4, **rule),
            domain=lambda device: ToyDomain(reward_of=lambda index, action: float(calls.append(0) or len(calls))),
        ),
        tmp_path / "busy",
    )
    assert sizes(tmp_path / "busy") == [4, 2, 2, 2]


def test_a_resumed_run_goes_on_with_the_size_it_had(tmp_path: Path) -> None:
    rule = {"dynamic_group_size": DynamicGroupSize(minimum=2, maximum=16)}
    flat = lambda device: ToyDomain(reward_of=lambda index, action: 1.0)  # noqa: E731
    stage = recipe(num_steps=4, **rule)
    train(job(stage, domain=flat, checkpoint=CheckpointConfig(every=1)), tmp_path / "run")
    import shutil

    for folder in (tmp_path / "run" / "checkpoints").iterdir():
        if folder.name != "step-2":
            shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "run" / "model")
    resume(job(stage, domain=flat, checkpoint=CheckpointConfig(every=1)), tmp_path / "run")
    assert sizes(tmp_path / "run") == [4, 8, 16, 16]


def test_bounds_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"minimum = 8 is above maximum = 4"):
        DynamicGroupSize(minimum=8, maximum=4)
    with pytest.raises(ValidationError, match="would grow and shrink at once"):
        DynamicGroupSize(shrink_below=0.6)
    with pytest.raises(ValidationError, match=r"train.group_size = 4 .* outside its bounds 8 to 16"):
        TrainConfig(group_size=4, dynamic_group_size=DynamicGroupSize(minimum=8, maximum=16))
