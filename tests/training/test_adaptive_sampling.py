"""Prompts drawn by how much their last rewards say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.training.toy import ToyDomain, job, recipe

from groupwise.streams import Streams
from groupwise.track import TrackConfig, read_metrics
from groupwise.training.run.launch import train
from groupwise.training.sampling import AdaptiveSampling


def test_weights_are_the_variance_of_passing_and_ranks_where_the_threshold_says_nothing() -> None:
    rule = AdaptiveSampling(threshold=0.5, floor=0.01)
    history = {1: [1.0, 0.0], 2: [1.0, 1.0, 0.6, 0.5], 3: [0.5, 0.5]}
    assert rule.weights(history, 4) == pytest.approx([1.01, 1.01, 0.76, 0.01])
    # Sizes in kB and scores of beauty: on one side of any threshold of 0 or 1, and as wide apart as they are.
    for offset in (-700.0, 5.6):
        spreads = {0: [offset, offset + 0.1], 1: [offset] * 3, 2: [offset, offset + 2.0], 3: [offset + 0.1, offset]}
        for threshold in (None, 0.5):
            ranked = AdaptiveSampling(threshold=threshold, floor=0.01).weights(spreads, 5)
            assert ranked == pytest.approx([0.76, 0.01, 1.01, 0.76, 1.01])


def test_a_threshold_that_says_nothing_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for threshold, times in ((7.0, 1), (0.5, 0), (None, 0)):
        stage = recipe(num_steps=3, prompts_per_step=4, adaptive_sampling=AdaptiveSampling(threshold=threshold))
        domain = ToyDomain(reward_of=lambda index, action: float(action[0] % 2))
        train(
            job(stage, domain=lambda device, d=domain: d, track=TrackConfig(console="lines")), tmp_path / str(threshold)
        )
        assert capsys.readouterr().out.count("threshold = 7 has all rewards of this step on one side") == times


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
