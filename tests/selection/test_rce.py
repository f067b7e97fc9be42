"""Reward-weighted cross-entropy: weights by hand, the loss against its formula, recorded and drawn candidates, tau's
schedule.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.selection.tiny import domain_of

from groupwise.config import ConfigError, validate
from groupwise.streams import Streams
from groupwise_selection.config import RceConfig
from groupwise_selection.member_rewards import measured_prefixes
from groupwise_selection.rce import candidate_weights


def test_weights_are_a_softmax_over_a_query_s_candidates() -> None:
    rewards, query = torch.tensor([0.0, 2.0, 1.0, 7.0]), torch.tensor([0, 0, 1, 1])
    weights = candidate_weights(rewards, query, tau=2.0)
    low = 1 / (1 + math.e)
    assert weights[:2].tolist() == pytest.approx([low, 1 - low])
    assert weights[2:].tolist() == pytest.approx([1 / (1 + math.exp(3)), 1 / (1 + math.exp(-3))])


def test_ranks_forget_the_size_of_differences_and_give_equal_candidates_equal_weight() -> None:
    query = torch.zeros(4, dtype=torch.long)
    weights = candidate_weights(torch.tensor([0.0, 1.0, 1.0, 50.0]), query, tau=0.5, kind="rank")
    # Ranks 0, 1.5, 1.5, 3 over 3: 0, 1/2, 1/2, 1, divided by tau.
    raw = [math.exp(0), math.exp(1), math.exp(1), math.exp(2)]
    assert weights.tolist() == pytest.approx([each / sum(raw) for each in raw])
    assert candidate_weights(torch.tensor([3.0]), torch.tensor([0]), tau=0.5, kind="rank").tolist() == [1.0]


def test_a_low_tau_takes_the_best_and_a_high_one_all() -> None:
    rewards, query = torch.tensor([0.0, 1.0]), torch.zeros(2, dtype=torch.long)
    assert candidate_weights(rewards, query, tau=0.01).tolist() == pytest.approx([0.0, 1.0], abs=1e-12)
    assert candidate_weights(rewards, query, tau=1e9).tolist() == pytest.approx([0.5, 0.5])


def test_a_candidate_without_a_reward_weighs_nothing() -> None:
    query = torch.tensor([0, 0, 1])
    weights = candidate_weights(torch.tensor([1.0, float("nan"), float("nan")]), query, tau=1.0)
    assert weights.tolist() == [1.0, 0.0, 0.0]


def test_tau_falls_from_two_to_a_half_and_must_stay_above_zero() -> None:
    tau = RceConfig().tau
    assert [tau.at(step) for step in (0, 50, 100, 500)] == [2.0, 1.25, 0.5, 0.5]
    with pytest.raises(ConfigError, match="tau comes to 0"):
        validate(RceConfig, {"tau": {"kind": "linear", "start": 1.0, "end": 0.0, "num_steps": 5}})


def test_the_loss_is_the_weighted_cross_entropy_of_whole_choices() -> None:
    domain = domain_of(rce={"candidates": {"kind": "sampled", "num_candidates": 3}, "tau": 0.5})
    samples = domain.demonstrations(7, streams=Streams(0), step=4)
    assert samples is not None
    assert len(samples) == 6
    assert not bool(samples.mask.any())
    scored = domain.score(samples, torch.arange(6), frozenset({"log_prob"}))
    # By hand: the live log-probs of the picks, the rewards measured again.
    queries = [domain._table.queries[place] for place in samples.payload["query"].tolist()]
    choices = domain._rescored(samples)
    measured = measured_prefixes(domain._measures, queries, choices, "first_pick_last", every=False)
    last = [row[-1] for row in measured]
    rewards = [each.accuracy + each.expected for each in last if each is not None]
    weight = torch.tensor(rewards, dtype=torch.float64).view(2, 3).div(0.5).softmax(1).flatten()
    log_prob = torch.stack(
        [choices.log_probs[row, place, samples.payload["picks"][row, place]] for row in range(6) for place in range(2)]
    ).view(6, 2)
    by_hand = (weight * -log_prob.detach().sum(1)).sum() / 2
    count = samples.auxiliary_count["supervised"]
    assert float(count.sum()) == pytest.approx(2.0)
    assert float(scored.auxiliary["supervised"].detach().sum() / count.sum()) == pytest.approx(float(by_hand))


def test_candidates_depend_on_step_and_seed_alone() -> None:
    domain = domain_of(rce={})
    first, again, later = (domain.demonstrations(8, streams=Streams(0), step=step) for step in (1, 1, 2))
    assert first is not None
    assert again is not None
    assert later is not None
    assert torch.equal(first.payload["picks"], again.payload["picks"])
    assert not torch.equal(first.payload["query"], later.payload["query"]) or not torch.equal(
        first.payload["picks"], later.payload["picks"]
    )


def recorded(folder: Path, **keys: Any) -> dict[str, Any]:
    """Three candidates of every training query, as places; the middle one is the best."""
    plain = domain_of()
    entry = [
        {"pointer_pos": [0, 1], "vqa_acc_score": 0.3},
        {"pointer_pos": [2, 3], "vqa_acc_score": 0.9},
        {"pointer_pos": [1, 0], "vqa_acc_score": 0.0},
    ]
    tree = {query.id: {"pointer_candidates": entry} for query in plain._questions.train}
    (folder / "recorded.json").write_text(json.dumps(tree))
    return {"candidates": {"kind": "recorded", "path": str(folder / "recorded.json"), **keys}, "tau": 0.1}


def test_recorded_candidates_are_weighed_by_what_was_recorded(tmp_path: Path) -> None:
    rewards = {"vqa": {"kind": "vqa", "mode": {"kind": "soft"}}}
    domain = domain_of(rce=recorded(tmp_path), rewards=rewards)
    samples = domain.demonstrations(7, streams=Streams(0), step=0)
    assert samples is not None
    # Two queries of three candidates fit into seven.
    assert len(samples) == 6
    expected = torch.tensor([3.0, 9.0, 0.0], dtype=torch.float64).softmax(0)
    assert samples.payload["weight"].view(2, 3).tolist() == [pytest.approx(expected.tolist())] * 2
    # Written as shown, the last next to the query, where this policy's first pick stands.
    assert samples.payload["picks"][:3].tolist() == [[1, 0], [3, 2], [0, 1]]
    assert any("read from their end" in remark for remark in domain.remarks)
    shown = domain_of(rce=recorded(tmp_path), rewards=rewards, order="first_pick_first")
    other = shown.demonstrations(7, streams=Streams(0), step=0)
    assert other is not None
    assert other.payload["picks"][:3].tolist() == [[0, 1], [2, 3], [1, 0]]


def test_a_field_that_was_not_recorded_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"18 of 18 candidates have no 'info', which rewards.vqa reads; all have acc"):
        domain_of(rce=recorded(tmp_path), rewards={"vqa": {"kind": "vqa", "mode": {"kind": "legacy"}}})
