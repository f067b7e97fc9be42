"""The memory of rewards: what prompts earned lately and what rewards keep, added once a step on every process, saved
and restored.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.toy import ToyDomain, cut_back, job, recipe, saved_model

from groupwise.checkpoint import CheckpointConfig, CheckpointStore
from groupwise.domain.protocol import Samples
from groupwise.reward import Rewards, RewardTable, UnitTests
from groupwise.reward.wall import machine_wall
from groupwise.reward.wall.machine_wall import Wall
from groupwise.track import read_metrics
from groupwise.training.run.launch import resume, train
from groupwise.training.sampling import AdaptiveSampling
from groupwise.training.step.state import RewardMemory, group_comparisons
from groupwise_selection.reward import Vqa
from groupwise_selection.reward.adaptive_weights import RunningQuantile
from groupwise_selection.reward.vqa import Hybrid

TRACKED = {"advantage.kind": "per_prompt", "advantage.buffer_size": 6, "advantage.min_count": 4}


def test_the_newest_rewards_stay_and_come_last() -> None:
    memory = RewardMemory(size=2)
    assert memory.add([(0, [1.0, 2.0, 3.0]), (1, [])]) == {"history/num_prompts": 1.0}
    assert memory.last == {0: [2.0, 3.0]}
    past = memory.past([1, 0])
    assert torch.equal(past[1], torch.tensor([2.0, 3.0], dtype=torch.float64))
    assert past[0].isnan().all()
    assert memory.add([(0, [4.0]), (1, [1.0])]) == {"history/num_prompts": 2.0, "history/gain": 1.5}


def test_a_prompt_counts_from_its_third_draw_and_loses_its_one_value_for_good() -> None:
    memory = RewardMemory()
    assert memory.add([(0, [1.0, 1.0]), (1, [0.5, 0.5])]) == {}
    assert memory.add([(0, [1.0]), (1, [0.5])]) == {}
    assert memory.add([(0, [1.0])]) == {"prompts/revisited": 1.0, "prompts/one_value": 1.0}
    assert memory.add([(1, [0.5, 0.25])]) == {"prompts/revisited": 2.0, "prompts/one_value": 0.5}
    assert memory.add([(1, [0.5]), (0, [0.0])]) == {"prompts/revisited": 2.0, "prompts/one_value": 0.0}


def test_members_without_a_reward_are_no_draw_and_rounding_is_no_other_value() -> None:
    memory = RewardMemory()
    for rewards in ([0.1 + 0.2], [], [0.3], [0.3]):
        metrics = memory.add([(4, rewards)])
    assert metrics == {"prompts/revisited": 1.0, "prompts/one_value": 1.0}


def test_a_record_goes_on_where_it_was() -> None:
    memory = RewardMemory(size=3)
    for _ in range(2):
        memory.add([(3, [0.0]), (9, [1.0, 0.0])])
    restored = RewardMemory.from_record(json.loads(json.dumps(memory.record())))
    first, second = (part.add([(3, [0.0]), (9, [1.0])]) for part in (memory, restored))
    assert first == second
    assert first["prompts/one_value"] == 0.5


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
    assert latest.load()["memory"]["last"] == {
        "0": [1.0, 2.0, 2.0, 3.0, 2.0, 3.0],
        "1": [1.0, 2.0, 2.0, 3.0, 2.0, 3.0],
    }


def test_a_run_that_was_cut_off_goes_on_with_the_past(tmp_path: Path) -> None:
    stage = recipe(num_steps=4, objective=TRACKED, adaptive_sampling=AdaptiveSampling(threshold=0.5))
    history_job = job(stage, checkpoint=CheckpointConfig(every=1, keep_last=9))
    train(history_job, tmp_path / "run")
    expected = saved_model(tmp_path / "run")
    resume(history_job, cut_back(tmp_path / "run", 2))
    assert saved_model(tmp_path / "run") == expected


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
    memory = RewardMemory()
    world: Any = Second()
    grouped = torch.tensor([0, 0])
    samples = Samples([], grouped, torch.ones(2, 1, dtype=torch.bool), torch.zeros(2, 1), rewards=table)
    memory.follow(toy.rewards, [samples], world)
    assert memory.kept == toy.rewards.memory() == {"vqa": {"": {"of": "the first"}}}


def remembered(folder: Path) -> dict[str, Any]:
    """Returns the memory of a run's reward at the end of the run."""
    latest = CheckpointStore(folder / "run" / "checkpoints", CheckpointConfig()).latest()
    assert latest is not None
    return latest.load()["memory"]["kept"]["vqa"][""]


def test_what_this_machine_refuses_a_reward_is_kept_with_every_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        machine_wall, "best_wall", lambda: Wall("none", filtered=False, refused="clone: Operation not permitted")
    )

    class Tested(ToyDomain):
        def __init__(self) -> None:
            super().__init__(2)
            self.rewards = Rewards({"tests": UnitTests()})

    train(job(recipe(num_steps=1, prompts_per_step=2), domain=lambda device: Tested()), tmp_path / "run")
    (start,) = json.loads((tmp_path / "run" / "environment.json").read_text())["starts"]
    (remark,) = start["remarks"]
    assert remark.startswith("reward 'tests': namespaces and Landlock are refused (clone: Operation not permitted)")
