"""The memory of rewards: comparisons by group and decision, added once a step on every process, saved and restored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.toy import ToyDomain, job, recipe

from groupwise.checkpoint import CheckpointConfig, CheckpointStore
from groupwise.domain.protocol import Samples
from groupwise.objective import Objective
from groupwise.reward import Rewards, RewardTable, UnitTests
from groupwise.reward.programs.wall import machine_wall
from groupwise.reward.programs.wall.machine_wall import Wall
from groupwise.track import read_metrics
from groupwise.training import train
from groupwise.training.job import Progress
from groupwise.training.step.collect import group_comparisons, remember
from groupwise.training.step.state import TrainState
from groupwise_selection.reward import Vqa
from groupwise_selection.reward.adaptive_weights import RunningQuantile
from groupwise_selection.reward.vqa import Hybrid


def test_fields_are_compared_inside_groups_and_decision_by_decision() -> None:
    fields = {"vqa": {"correct": [[1.0, 0.0], [0.0], [1.0, 1.0]], "shots": [[1.0, 2.0], [1.0], [1.0, 2.0]]}}
    table = RewardTable({"vqa": [0.5, 0.0, 1.0]}, fields=fields)
    comparisons = group_comparisons(torch.tensor([7, 7, 3]), table)
    assert comparisons == [
        (3, {"vqa": [{"correct": [1.0], "shots": [1.0]}, {"correct": [1.0], "shots": [2.0]}]}),
        # The member that ended after one pick takes no part in the second comparison.
        (7, {"vqa": [{"correct": [1.0, 0.0], "shots": [1.0, 1.0]}, {"correct": [0.0], "shots": [2.0]}]}),
    ]
    assert group_comparisons(torch.tensor([0]), RewardTable({"a": [1.0]})) == []


class Remembering(ToyDomain):
    """The toy, rewarded by how often its actions are right on a scale that follows what was seen."""

    def __init__(self, num_prompts: int = 2) -> None:
        super().__init__(num_prompts)
        self.rewards = Rewards(
            {"vqa": Vqa(mode=Hybrid(alpha=1.0, scale=RunningQuantile(low=0.0, high=1.0, decay=0.0)))}
        )
        self.step_rewards: list[list[float]] = []

    def reward(self, samples: Samples) -> RewardTable:
        # Twice as much at every step, so that the scale moves.
        table = super().reward(samples)
        rewards = [2.0 ** len(self.step_rewards) * (value or 0.0) for value in next(iter(table.values.values()))]
        self.step_rewards.append(rewards)
        return self.rewards.score(["q"] * len(rewards), [""] * len(rewards), {"info": rewards})


def test_a_step_is_rewarded_by_what_came_before_it_and_the_memory_is_saved(tmp_path: Path) -> None:
    toys: list[Remembering] = []

    def build(device: Any) -> Remembering:
        toys.append(Remembering())
        return toys[-1]

    train(
        job(recipe(num_steps=3, prompts_per_step=2), domain=build, checkpoint=CheckpointConfig(every=1)),
        tmp_path / "run",
    )
    step_rewards = toys[0].step_rewards
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if "rewards/vqa/info_high" in row]
    assert [row["rewards/vqa/info_high"] for row in rows] == pytest.approx([max(rewards) for rewards in step_rewards])
    assert [row["rewards/vqa/measured/info"] for row in rows] == pytest.approx(
        [sum(rewards) / len(rewards) for rewards in step_rewards]
    )
    # The second step is on the scale of the first.
    low, high = min(step_rewards[0]), max(step_rewards[0])
    assert rows[1]["reward"] == pytest.approx(
        sum(min(max((value - low) / (high - low), 0), 1) for value in step_rewards[1]) / len(step_rewards[1])
    )
    assert remembered(tmp_path)["scale"] == pytest.approx(
        {"low": min(step_rewards[2]), "high": max(step_rewards[2]), "weight": 1.0}
    )


class Second:
    """The second of two processes, whose reward has made another memory of the same batch."""

    def gather(self, value: Any) -> list[Any]:
        return [{"vqa": {"": {"of": "the first"}}} if isinstance(value, dict) else value, value]


def test_every_process_goes_on_with_the_memory_of_the_first_which_a_checkpoint_keeps() -> None:
    toy = Remembering()
    table = toy.rewards.score(["q", "q"], ["", ""], {"info": [1.0, 2.0]})
    state = TrainState(Progress(), Objective().init(), toy.learner)
    world: Any = Second()
    remember(toy, state, [(torch.tensor([0, 0]), table)], world)
    assert state.reward_memory == toy.rewards.memory() == {"vqa": {"": {"of": "the first"}}}


def remembered(folder: Path) -> dict[str, Any]:
    """Returns the memory of a run's reward at the end of the run."""
    latest = CheckpointStore(folder / "run" / "checkpoints", CheckpointConfig()).latest()
    assert latest is not None
    return latest.load()["reward_memory"]["vqa"][""]


def test_what_this_machine_refuses_a_reward_is_kept_with_every_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        machine_wall, "standing", lambda: Wall("none", filtered=False, refused="clone: Operation not permitted")
    )

    class Tested(ToyDomain):
        def __init__(self) -> None:
            super().__init__(2)
            self.rewards = Rewards({"tests": UnitTests()})

    train(job(recipe(num_steps=1, prompts_per_step=2), domain=lambda device: Tested()), tmp_path / "run")
    (start,) = json.loads((tmp_path / "run" / "environment.json").read_text())["starts"]
    (remark,) = start["remarks"]
    assert remark.startswith("reward 'tests': namespaces and Landlock are refused (clone: Operation not permitted)")
