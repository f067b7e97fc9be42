"""One real group: what it shows is what the objective computes from the rewards it shows."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from groupwise.experiment.loading import load_experiment
from groupwise.experiment.one_group import one_group
from groupwise.experiment.runner import open_domain


def test_advantages_are_the_z_scores_of_the_rewards_shown(tiny: Path):
    experiment = load_experiment(
        tiny, ["domain.rewards.brief.kind=length", "domain.rewards.brief.target=2", "domain.rewards.brief.weight=0.5"]
    )
    domain = open_domain(experiment)
    for index in range(8):
        group = one_group(experiment.spans[1], domain, index)
        if not group.flat:
            break
    totals = [
        correct + 0.5 * brief for correct, brief in zip(group.rewards["correct"], group.rewards["brief"], strict=True)
    ]
    mean, spread = statistics.fmean(totals), statistics.stdev(totals)
    assert spread > 0
    assert group.advantages == pytest.approx([(total - mean) / spread for total in totals], abs=1e-5)
    assert group.weights == {"correct": 1.0, "brief": 0.5}
    assert group.prompt["prompt"].startswith("sort ")
    assert [member["num_tokens"] for member in group.members] == list(group.num_decisions)


def test_checking_a_group_changes_nothing(tiny: Path):
    experiment = load_experiment(tiny)
    domain = open_domain(experiment)
    initial_weights = [parameter.clone() for parameter in domain.module.parameters()]
    group = one_group(experiment.spans[1], domain)
    assert all(
        (initial == current).all() for initial, current in zip(initial_weights, domain.module.parameters(), strict=True)
    )
    assert one_group(experiment.spans[1], domain) == group
