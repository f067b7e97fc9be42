"""Source 004's grids and plans as shipped: what their variants are, and the numbers of its formulas."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from tests.objective.small import advantages, grouped

from groupwise.config import parse_overrides
from groupwise.experiment import Experiment, load_experiment
from groupwise.objective.advantage import PositiveShare, Rank, ZScore
from groupwise.schedule import Multiplicative
from groupwise_look.compare.grids import variants
from groupwise_selection.config import SelectionConfig
from groupwise_selection.reward import Vqa
from groupwise_selection.reward.vqa import AnyMode

NAMES = ["rewards", "modes", "advantage", "weights", "adaptive", "shots", "legacy_then"]


def shipped(name: str) -> list[Experiment]:
    """Every variant of an experiment, each as the experiment that holds in its last stage."""
    name = f"source_004_{name}" if name else "source_004"
    comparison = load_experiment(name).comparison
    assert comparison is not None
    return [load_experiment(name, parse_overrides(list(variant.overrides))) for variant in variants(comparison.vary)]


def reward(experiment: Experiment) -> Vqa:
    found = domain(experiment).rewards["vqa"]
    assert isinstance(found, Vqa)
    return found


def domain(experiment: Experiment) -> SelectionConfig:
    assert isinstance(experiment.domain, SelectionConfig)
    return experiment.domain


def mode(experiment: Experiment) -> str:
    return reward(experiment).mode.kind


def test_the_first_grid_has_four_reward_modes() -> None:
    assert [mode(each) for each in shipped("rewards")] == ["legacy", "hard_plus_soft", "hard_plus_soft_v2", "hybrid"]


def test_the_second_grid_has_z_scores_and_ranks_with_its_numbers() -> None:
    found = [(each.objective.advantage, each.objective.admission.kind) for each in shipped("advantage")]
    kinds: list[Any] = [ZScore(min_std=0.1, clip=5.0), Rank(), Rank(ties="order")]
    assert found == [(kind, admission) for kind in kinds for admission in ("all", "positive_share")]
    admission = shipped("advantage")[1].objective.admission
    assert isinstance(admission, PositiveShare)
    assert (admission.min_positive_ratio, admission.threshold) == (0.2, 1.0)


def test_the_third_grid_has_four_settings_of_weights() -> None:
    assert [reward(each).mode.weights() for each in shipped("weights")] == [
        {"correct": 1.0, "accuracy": 1.0},
        {"correct": 1.0, "accuracy": 0.5},
        {"correct": 2.0, "accuracy": 1.0},
        {"correct": 2.0, "accuracy": 0.5},
    ]


@pytest.mark.slow
def test_the_fifth_plan_goes_on_from_a_policy_of_the_older_reward() -> None:
    found = [tuple(mode(span) for span in each.spans) for each in shipped("legacy_then")]
    new, old = "hard_plus_soft", "legacy"
    assert found == [(new, new), (new, old), (old, new), (old, old)]


def test_the_stages_of_the_source_have_its_schedules() -> None:
    first, second = shipped("")
    assert (domain(first).rce.weights, domain(second).rce.weights) == ("reward", "rank")  # type: ignore[union-attr]
    warm_up, policy = first.spans
    assert not warm_up.samples
    tau = domain(warm_up).rce.tau  # type: ignore[union-attr]
    assert (tau.at(0), tau.at(warm_up.train.num_steps)) == (2.0, 0.5)
    beta = policy.objective.divergence.beta
    assert isinstance(beta, Multiplicative)
    assert (beta.initial, beta.lower, beta.upper, beta.factor) == (0.1, 0.01, 0.1, 1.5)
    assert policy.objective.admission.kind == "positive_share"


@pytest.mark.slow
def test_every_mode_and_every_strategy_is_run_by_some_shipped_experiment() -> None:
    found = [each for name in [*NAMES, ""] for each in shipped(name)]
    union: Any = get_args(AnyMode)[0]
    kinds = {kind for model in get_args(union) for kind in get_args(model.model_fields["kind"].annotation)}
    assert {mode(each) for each in found} == kinds - {"separated"}, "another name of hard_plus_soft_v2"
    assert {reward(each).adapt.follow for each in found if reward(each).adapt is not None} == {"spread", "informative"}  # type: ignore[union-attr]
    assert any(
        domain(each).prefix is not None and domain(each).prefix.weights == [0.2, 0.3, 0.2, 0.3] for each in found
    )  # type: ignore[union-attr]
    assert any(domain(each).random_shots for each in found)
    assert any(reward(each).per_shot for each in found)
    assert any(domain(each).stop and "cost" in domain(each).rewards for each in found)


# Its formulas, at rewards of a right answer (accuracy .9), two wrong ones (.3) and a wrong one (0): 1.9, .3, .3, 0.


def test_the_z_score_of_the_source_by_hand() -> None:
    # Mean .625, squares 1.275^2 + 2 * .325^2 + .625^2 = 2.2275, over three .7425.
    std = 0.7425**0.5
    assert advantages(ZScore(min_std=0.1, clip=5.0), [1.9, 0.3, 0.3, 0.0]) == pytest.approx(
        [1.275 / std, -0.325 / std, -0.325 / std, -0.625 / std]
    )
    # A spread below the floor of .1 is divided by the floor: .02 around .31.
    assert advantages(ZScore(min_std=0.1, clip=5.0), [0.33, 0.29]) == pytest.approx([0.2, -0.2])
    # One right of a hundred: 99 / 10 standard deviations of 1/10, cut at 5.
    assert advantages(ZScore(min_std=0.1, clip=5.0), [1.0] + [0.0] * 99)[0] == 5.0


def test_the_ranks_of_the_source_by_hand() -> None:
    assert advantages(Rank(), [1.9, 0.3, 0.3, 0.0]) == pytest.approx([1.0, 0.0, 0.0, -1.0])
    assert advantages(Rank(ties="order"), [1.9, 0.3, 0.3, 0.0]) == pytest.approx([1.0, 1 / 3, -1 / 3, -1.0])


def test_the_admission_of_the_source_by_hand() -> None:
    # One of four is right, then one of five, then none; a fifth is enough.
    groups = grouped([1.9, 0.3, 0.3, 0.0], [1.9, 0.0, 0.0, 0.0, 0.3], [0.3, 0.0, 0.3, 0.0])
    assert PositiveShare(threshold=1.0, min_positive_ratio=0.2)(groups).tolist() == [True, True, False]


def test_the_adaptive_beta_of_the_source_moves_once_an_update() -> None:
    beta = shipped("")[0].spans[1].objective.divergence.beta
    assert [beta.observe(0.1, measured) for measured in (0.2, 0.05, 0.001)] == pytest.approx([0.15, 0.1, 0.1 / 1.5])
