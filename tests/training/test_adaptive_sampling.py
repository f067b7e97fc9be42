"""Prompts drawn by how often they were solved lately."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.training.toy import ToyDomain, job, recipe

from groupwise.streams import Streams
from groupwise.track import read_metrics
from groupwise.training.run.launch import train
from groupwise.training.sampling import AdaptiveSampling


def test_weights_are_the_variance_of_passing() -> None:
    rule = AdaptiveSampling(threshold=0.5, floor=0.01)
    assert rule.weight([]) == pytest.approx(1.01)
    assert rule.weight([1.0, 0.0]) == pytest.approx(1.01)
    assert rule.weight([1.0, 1.0, 0.6, 0.5]) == pytest.approx(0.76)
    assert rule.weight([0.5, 0.5]) == pytest.approx(0.01)


def test_draws_follow_the_weights_never_repeat_within_a_step_and_are_found_from_counters() -> None:
    rule = AdaptiveSampling(floor=0.01, memory=2)
    # The last two count: prompt 0 always solved, prompt 1 never, prompts 2 and 3 half of the time.
    history = {0: [0.0, 1.0, 1.0], 1: [1.0, 0.0, 0.0], 2: [1.0, 0.0], 3: [0.0, 1.0]}
    counts: Counter[int] = Counter()
    drawn = 0
    for _ in range(300):
        before = drawn
        chosen, drawn = rule.draw(Streams(0), history, 4, drawn, 2)
        assert len(set(chosen)) == 2
        assert rule.draw(Streams(0), history, 4, before, 2)[0] == chosen
        counts.update(chosen)
    assert drawn == 600
    assert counts[2] + counts[3] > 570
    assert counts[0] + counts[1] > 0


@pytest.mark.slow
def test_training_spends_its_groups_where_there_is_something_to_learn(tmp_path: Path) -> None:
    """Six of eight prompts are always right; what is drawn after the first steps is mostly the other two."""
    num_samples: dict[str, Counter[int]] = {"epochs": Counter(), "adaptive": Counter()}
    flat: dict[str, float] = {}
    for name, rule in (("epochs", None), ("adaptive", AdaptiveSampling(threshold=0.5))):

        def reward(index: int, action: object, name: str = name) -> float:
            num_samples[name][index] += 1
            return 1.0 if index < 6 else float(sum(num_samples[name].values()) % 2)

        stage = recipe(num_steps=40, prompts_per_step=2, rate=0.0001, adaptive_sampling=rule)
        train(job(stage, domain=lambda device, reward=reward: ToyDomain(reward_of=reward)), tmp_path / name)
        rows = [row for row in read_metrics(tmp_path / name / "metrics.jsonl") if "groups/flat" in row]
        flat[name] = sum(row["groups/flat"] for row in rows) / len(rows)
    assert flat["epochs"] == pytest.approx(0.75)
    assert flat["adaptive"] < 0.35
    share = (num_samples["adaptive"][6] + num_samples["adaptive"][7]) / sum(num_samples["adaptive"].values())
    assert share > 0.65
