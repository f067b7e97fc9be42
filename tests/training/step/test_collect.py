"""A batch holds the groups it should, and its draws depend on nothing but the seed and the counters."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.training.step.test_update import gathered, started, step_of
from tests.training.toy import ToyDomain, recipe

from groupwise.config import ConfigError
from groupwise.objective.batch import Grouped, Running
from groupwise.objective.slot import AdvantageSlot
from groupwise.streams import Streams
from groupwise.training.step.step import collect, draw_prompts, update_policy

RESAMPLE = {"admission.kind": "resample", "admission.max_rounds": 8}


class OnePast(AdvantageSlot):
    """Follows the rewards of this process alone."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[torch.Tensor, Running]:
        mean = float(rewards.value.mean())
        return rewards.compared(rewards.value - running.mean), running.follow(mean, 1.0, 1.0, 0.5)


class NoPast(AdvantageSlot):
    """Keeps a deviation that one value has none of."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[torch.Tensor, Running]:
        return rewards.compared(rewards.value - rewards.mean), running.follow(0.0, float("nan"), 1.0, 0.5)


def only_even(index: int, action: Any) -> float:
    """Groups of odd prompts are flat; of even ones the eight members practically never agree."""
    return float(action[0] + 10 * action[1] + 100 * action[2]) if index % 2 == 0 else 1.0


def test_resampling_fills_the_batch_with_the_first_admitted_groups() -> None:
    toy, state, collected = gathered(recipe(objective=RESAMPLE, group_size=8), num_prompts=24, reward_of=only_even)
    assert collected.numbers["num_rounds"] >= 2
    assert len(collected.samples) == 4 * 8
    assert (collected.samples.payload["index"] % 2 == 0).all()
    assert collected.samples.place.unique().tolist() == sorted(collected.samples.place.unique().tolist())
    assert collected.batch.admitted.all()
    assert collected.remarks == []
    assert state.progress.num_drawn == collected.numbers["num_prompts_drawn"]
    del toy


def test_statistics_count_the_drawn_groups_and_not_only_the_admitted() -> None:
    _, _, collected = gathered(recipe(objective=RESAMPLE, group_size=8), num_prompts=24, reward_of=only_even)
    drawn, _ = draw_prompts(Streams(0), 24, 0, int(collected.numbers["num_prompts_drawn"]))
    flat = collected.statistics["frac_reward_zero_std"].finish("flat")["flat"]
    assert flat == sum(index % 2 for index in drawn) / len(drawn)
    assert flat > 0


class First:
    """The first of two processes, whose peer has earned twice as much."""

    rank, size, joined = 0, 2, True

    def share(self, count: int) -> range:
        return range(count)

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def gather(self, value: Any) -> list[Any]:
        places, running, num_compared = value
        return [value, (places, {name: 2 * number for name, number in running.items()}, num_compared)]


def test_running_statistics_of_one_process_alone_are_refused() -> None:
    path = {"advantage.kind": "callable", "advantage.path": "tests.training.step.test_collect:OnePast"}
    toy, chosen, world = ToyDomain(), recipe(objective=path), First()
    step = replace(step_of(toy, chosen, started(toy, chosen)), world=world)  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"OnePast' has other running statistics on process 1 than on process 0 \(mean_sum = "
    ):
        collect(step)


def test_running_statistics_that_are_no_number_do_not_differ() -> None:
    path = {"advantage.kind": "callable", "advantage.path": "tests.training.step.test_collect:NoPast"}
    _, _, collected = gathered(recipe(objective=path))
    assert collected.batch is not None
    assert math.isnan(collected.batch.state.running.std_sum)


def test_too_few_groups_train_and_are_said() -> None:
    _, _, collected = gathered(
        recipe(objective=RESAMPLE),
        num_prompts=24,
        reward_of=lambda index, action: float(action[0] % 2) if index < 1 else 0.0,
    )
    assert collected.numbers["num_rounds"] == 8
    assert 0 < len(collected.samples.place.unique()) < 4
    num_kept = len(collected.samples.place.unique())
    assert collected.remarks == [
        f"8 rounds of sampling gave {num_kept} of 4 groups that may train; the step trains those"
    ]


def test_no_group_at_all_gives_no_batch() -> None:
    _, _, collected = gathered(recipe(objective=RESAMPLE), reward_of=lambda index, action: 1.0)
    assert collected.batch is None
    assert collected.remarks == ["8 rounds of sampling gave 0 of 4 groups that may train; the step has no policy term"]


def test_a_step_in_which_nothing_can_be_compared_makes_no_update_and_says_so() -> None:
    # A divergence alone would move the policy; one member of four earns a reward.
    chosen = recipe(objective={"divergence.kind": "k3", "divergence.beta": 0.1, "divergence.against": "behaviour"})
    seen: list[int] = []

    def rarely(index: int, action: torch.Tensor) -> float | None:
        seen.append(index)
        return 1.0 if seen.count(index) == 1 else None

    toy, state, collected = gathered(chosen, reward_of=rarely)
    assert collected.remarks == [
        "no group has two members with all their rewards: nothing is compared, and the step has no policy term"
    ]
    updates = update_policy(step_of(toy, chosen, state), collected)
    assert (updates.taken, updates.skipped) == (0, 1)


def test_a_prompt_met_again_in_a_later_round_is_sampled_afresh() -> None:
    chosen = recipe(objective=RESAMPLE, prompts_per_step=4, group_size=2)
    toy = ToyDomain(
        num_prompts=4, num_decisions=3, reward_of=lambda index, action: float(action.sum()) if index == 3 else 0.0
    )
    collected = collect(step_of(toy, chosen, started(toy, chosen)))
    index, action = collected.samples.payload["index"], collected.samples.payload["action"]
    groups = [action[collected.samples.place == place].tolist() for place in collected.samples.place.unique()]
    assert (index == 3).all()
    assert len(groups) >= 2
    assert groups[0] != groups[1]


def test_the_reference_scores_under_its_own_weights() -> None:
    chosen = recipe(method="grpo")
    toy, state, _ = gathered(chosen)
    with torch.no_grad():
        toy.module.out.bias.add_(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    collected = collect(step_of(toy, chosen, state))
    with state.reference.active():
        expected = toy.score(collected.samples, torch.arange(len(collected.samples)), frozenset({"log_prob"})).log_prob
    assert torch.equal(collected.batch.acted.reference_log_prob, expected)
    assert (collected.batch.acted.reference_log_prob - collected.samples.recorded.log_prob).abs().max() > 0.1


@settings(max_examples=50, deadline=None)
@given(size=st.integers(1, 20), counts=st.lists(st.integers(1, 20), min_size=1, max_size=12), seed=st.integers(0, 5))
def test_no_draw_and_no_epoch_holds_a_prompt_twice(size: int, counts: list[int], seed: int) -> None:
    prompts_of_epoch: dict[int, list[int]] = {}
    drawn = 0
    for count in (min(count, size) for count in counts):
        indices, drawn = draw_prompts(Streams(seed), size, drawn, count)
        assert len(set(indices)) == count
        prompts_of_epoch.setdefault((drawn - 1) // size, []).extend(indices)
    assert all(
        len(set(indices)) == len(indices) and set(indices) <= set(range(size)) for indices in prompts_of_epoch.values()
    )
