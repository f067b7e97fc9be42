"""Prompts drawn from the share that fares worst."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.training.toy import ToyDomain, job, recipe

from groupwise.config import ConfigError, validate
from groupwise.streams import Streams
from groupwise.training.config import TrainConfig
from groupwise.training.run.launch import train
from groupwise.training.sampling import WorstFirst


def test_every_prompt_comes_once_and_then_only_the_worst() -> None:
    rule, history, drawn = WorstFirst(share=0.25, memory=2), dict[int, list[float]](), 0
    first: list[int] = []
    for _ in range(4):
        chosen, drawn = rule.draw(Streams(0), history, 16, drawn, 4)
        first += chosen
        history |= {place: [9.0, float(place % 8), float(place % 8)] for place in chosen}
    assert sorted(first) == list(range(16))
    counts: Counter[int] = Counter()
    for _ in range(50):
        before = drawn
        chosen, drawn = rule.draw(Streams(0), history, 16, drawn, 2)
        assert len(set(chosen)) == 2
        assert rule.draw(Streams(0), history, 16, before, 2)[0] == chosen
        counts.update(chosen)
    # The remembered rewards are the last two: the best of all times does not count.
    assert set(counts) == {0, 8, 1, 9}
    assert min(counts.values()) > 10


def test_one_that_has_become_better_leaves_its_place() -> None:
    rule = WorstFirst(share=0.5, memory=1)
    history = {0: [0.1], 1: [0.2], 2: [0.5], 3: [0.6]}
    assert rule.candidates(history, 4, 1) == [0, 1]
    assert rule.candidates({**history, 0: [0.1, 0.9]}, 4, 1) == [1, 2]


def test_what_is_left_of_the_first_pass_is_filled_up_with_the_worst() -> None:
    history = {0: [0.9], 1: [0.1], 2: [0.5]}
    assert WorstFirst(share=0.25).candidates(history, 4, 3) == [3, 1, 2]
    assert WorstFirst(share=0.01).candidates({**history, 3: [0.2]}, 4, 2) == [1, 3]


def test_a_run_draws_the_worst(tmp_path: Path) -> None:
    """Eight prompts that earn their number; a quarter of them is worst."""
    counts: Counter[int] = Counter()

    def reward(index: int, action: object) -> float:
        counts[index] += 1
        return float(index)

    stage = recipe(num_steps=8, prompts_per_step=2, rate=0.0001, worst_first=WorstFirst(share=0.25))
    train(job(stage, domain=lambda device: ToyDomain(reward_of=reward)), tmp_path / "run")
    # Four members of every prompt, then of the two worst in each of four further steps.
    assert counts == {0: 20, 1: 20, **dict.fromkeys(range(2, 8), 4)}


def test_two_rules_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"adaptive_sampling and train.worst_first both say which prompts are drawn"):
        validate(TrainConfig, {"adaptive_sampling": {}, "worst_first": {}}, "test")
