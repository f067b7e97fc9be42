"""What rules say of prompts and evaluations."""

from __future__ import annotations

from typing import Any

import pytest
from tests.look.diagnosis.rule.test_rewards import course

from groupwise_look.diagnosis import Finding, diagnose
from groupwise_look.diagnosis.rule import RULES
from groupwise_look.diagnosis.rule.rising import evaluations_stay, luck, num_evaluated
from groupwise_look.diagnosis.stage import Stage


def rules(
    evaluations: tuple[float, float], reward: tuple[float, float] = (0.15, 0.15), settings: dict[str, Any] | None = None
) -> set[str]:
    """The alarms of a policy that is evaluated before its first step and at the end."""
    rows = course(num_steps=40, reward=reward, reward_std=(0.3, 0.3), rewards_std=(0.36, 0.36))
    rows[-1]["eval/restored/reward"] = evaluations[1]
    before = {"step": 0, "stage": "grpo", "eval/restored/reward": evaluations[0]}
    return {finding.rule for finding in diagnose([before, *rows], settings or {}) if finding.severity != "note"}


def test_a_policy_that_is_good_elsewhere_and_gets_worse_is_told_to_look_at_its_data() -> None:
    assert "training_unlike_held_out" in rules((0.55, 0.3))


def test_the_doctor_calls_no_prompts_held_out_since_it_does_not_know_which_were_trained_on() -> None:
    """Rules read metrics and settings; a shipped diffusion run evaluates the prompts that it trains on."""
    rows = course(num_steps=40, reward=(0.15, 0.15), reward_std=(0.3, 0.3), rewards_std=(0.36, 0.36))
    rows[-1]["eval/ode/reward"] = 0.3
    found = diagnose([{"step": 0, "stage": "grpo", "eval/ode/reward": 0.55}, *rows])
    assert "training_unlike_held_out" in {finding.rule for finding in found}
    texts = [finding.what for finding in found]
    texts += [text for rule in RULES for text in (rule.means, rule.advice, rule.phrase)]
    assert not [text for text in texts if "held-out" in text.lower()]


@pytest.mark.parametrize(
    ("evaluations", "reward"),
    [
        pytest.param((0.55, 0.5), (0.15, 0.15), id="the evaluation stays: noise of the sampler"),
        pytest.param((0.55, 0.3), (0.15, 0.6), id="the reward rises: harder prompts are learnt"),
        pytest.param((0.28, 0.1), (0.15, 0.15), id="the gap is within the spread of a group"),
        pytest.param((0.15, 0.05), (0.15, 0.15), id="both are alike"),
    ],
)
def test_other_gaps_are_no_fault_of_the_data(evaluations: tuple[float, float], reward: tuple[float, float]) -> None:
    assert "training_unlike_held_out" not in rules(evaluations, reward)


def test_few_held_out_prompts_may_be_easy_by_luck() -> None:
    assert "training_unlike_held_out" not in rules((0.55, 0.3), settings={"domain": {"data": {"num_held_out": 4}}})


@pytest.mark.parametrize(
    ("evaluations", "reward", "speaks"),
    [
        pytest.param((0.2, 0.05), (0.6, 0.9), True, id="the evaluation falls while the reward rises"),
        pytest.param((0.2, 0.2), (0.6, 0.6), True, id="both stay apart"),
        pytest.param((0.2, 0.5), (0.6, 0.9), False, id="the evaluation follows"),
        pytest.param((0.2, 0.3), (0.4, 0.9), True, id="the evaluation follows, and the gap grows"),
        pytest.param((0.2, 0.3), (0.4, 0.45), False, id="the evaluation follows, and the gap closes"),
        pytest.param((0.2, 0.05), (0.6, 0.1), False, id="the policy is broken"),
        pytest.param((0.55, 0.5), (0.6, 0.9), False, id="they begin alike"),
    ],
)
def test_an_evaluation_that_was_worse_from_the_start_is_another_task(
    evaluations: tuple[float, float], reward: tuple[float, float], speaks: bool
) -> None:
    assert ("held_out_unlike_training" in rules(evaluations, reward)) == speaks


@pytest.mark.parametrize(("evaluations", "speaks"), [((), False), ((0.2,), False), ((0.2, 0.2), True)])
def test_an_average_lags_where_evaluations_have_shown_it(evaluations: tuple[float, ...], speaks: bool) -> None:
    settings = {"train": {"weight_average": {"decay": 0.9999, "warm_up": False}}}
    rows = [{"step": 0, "stage": "grpo"}, *course(num_steps=40, reward=(0.2, 0.9))]
    for row, value in zip((rows[0], rows[-1]), evaluations, strict=False):
        row["eval/greedy/reward"] = value
    assert ("average_lags" in {finding.rule for finding in diagnose(rows, settings)}) == speaks


@pytest.mark.parametrize(("share", "said"), [(1.0, True), (0.2, True), (0.1, False)])
def test_many_prompts_that_are_cut_are_said(share: float, said: bool) -> None:
    rows = course(num_steps=5, settings__truncated_prompts=(share, share), reward=(0.2, 0.2))
    assert ("prompts_truncated" in {finding.rule for finding in diagnose(rows)}) == said


def said(settings: dict[str, Any], temperature: float | None = None, spread: float = 0.36) -> list[str]:
    """The alarms of a policy that earns .15 while it is sampled and .55 in evaluations, and does not learn."""
    rows = course(num_steps=30, reward=(0.15, 0.15), reward_std=(0.3, 0.3), rewards_std=(spread, spread))
    if temperature is not None:
        rows = [row | {"settings/temperature": temperature} for row in rows]
    before = {"step": 0, "stage": "grpo", "eval/restored/reward": 0.55}
    rows[20]["eval/restored/reward"] = 0.56
    return [finding.rule for finding in diagnose([before, *rows], settings) if finding.severity != "note"]


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        pytest.param({}, ["exploration_too_strong"], id="unknown"),
        pytest.param({"evaluation": {"num_images": None}}, ["exploration_too_strong"], id="all"),
        pytest.param({"evaluation": {"num_images": 50}}, ["exploration_too_strong"], id="fifty"),
        pytest.param({"evaluation": {"num_images": 8}}, [], id="eight"),
        pytest.param({"data": {"num_held_out": 4}, "evaluation": {"num_prompts": 50}}, [], id="four held out"),
    ],
)
def test_few_held_out_prompts_may_be_easy_by_luck_exploration(settings: dict[str, Any], rules: list[str]) -> None:
    assert said({"domain": settings}) == rules


def test_a_gap_within_the_errors_of_the_members_is_luck() -> None:
    assert said({"domain": {"evaluation": {"num_images": 12}}}, spread=0.6) == []


@pytest.mark.parametrize(("temperature", "rules"), [(1.0, []), (1.5, ["exploration_too_strong"])])
def test_texts_at_temperature_one_are_the_policys_own(temperature: float, rules: list[str]) -> None:
    assert said({}, temperature) == rules


@pytest.mark.parametrize(("rise", "rules"), [(0.02, ["exploration_too_strong"]), (0.1, [])])
def test_a_rise_that_leaves_the_gap_as_wide_is_noise(rise: float, rules: list[str]) -> None:
    rows = course(num_steps=40, reward_std=(0.3, 0.3))
    for place, row in enumerate(rows):
        row["reward"] = 0.15 + rise * (place >= 20)
    before = {"step": 0, "stage": "grpo", "eval/restored/reward": 0.55}
    rows[-1]["eval/restored/reward"] = 0.56
    assert [found.rule for found in diagnose([before, *rows]) if found.severity != "note" and found.holds] == rules


def of(rule: str, rows: list[dict[str, Any]], settings: dict[str, Any] | None = None) -> Finding | None:
    return next((finding for finding in diagnose(rows, settings or {}) if finding.rule == rule), None)


def evaluated(reward: tuple[float, float], *evaluations: dict[str, float]) -> list[dict[str, Any]]:
    """A run that is evaluated before its first step, at half of it and at its end."""
    rows = [{"step": 0, "stage": "grpo"}, *course(num_steps=40, reward=reward, reward_std=(0.4, 0.4))]
    for row, values in zip((rows[0], rows[20], rows[-1]), evaluations, strict=True):
        row |= {f"eval/greedy/{name}": value for name, value in values.items()}
    return rows


STILL = {"reward": 0.25, "length": 4.97}


@pytest.mark.parametrize(
    ("reward", "evaluations", "speaks"),
    [
        pytest.param((0.4, 0.99), [STILL, STILL, STILL], True, id="the same to the last digit while the reward rises"),
        pytest.param((0.4, 0.45), [STILL, STILL, STILL], False, id="the reward stands too"),
        pytest.param((0.4, 0.99), [STILL, {**STILL, "length": 4.98}, STILL], False, id="one of them moves"),
        pytest.param((0.4, 0.99), [{"reward": 0.25}] * 3, False, id="one number may come again by chance"),
        pytest.param((0.4, 0.9), [{"reward": 0.95, "length": 4.97}] * 3, False, id="nearly all is earned already"),
        pytest.param((0.4, 0.9), [{"reward": 0.0, "length": 9.5}] * 3, False, id="evaluated prompts are out of reach"),
    ],
)
def test_an_evaluation_repeats_where_the_policy_has_learnt(
    reward: tuple[float, float], evaluations: list[dict[str, float]], speaks: bool
) -> None:
    assert (of("evaluation_repeats", evaluated(reward, *evaluations)) is not None) == speaks


def test_what_rose_before_the_first_evaluation_says_nothing_about_later_ones() -> None:
    rows = course(num_steps=100, reward_std=(0.4, 0.4))
    for place, row in enumerate(rows):
        row["reward"] = min(0.9, 0.2 + 0.03 * place)
    for row in (rows[49], rows[99]):
        row |= {f"eval/greedy/{name}": value for name, value in STILL.items()}
    assert of("evaluation_repeats", rows) is None
    rows[0] |= {f"eval/greedy/{name}": value for name, value in STILL.items()}
    assert of("evaluation_repeats", rows) is not None


@pytest.mark.parametrize(
    ("epoch", "revisited", "train", "speaks"),
    [
        pytest.param(0.1, 16, {}, True, id="a third time within a tenth of an epoch"),
        pytest.param(2.5, 16, {}, False, id="in the third epoch every prompt comes a third time"),
        pytest.param(0.1, 2, {}, False, id="two of sixteen"),
        pytest.param(0.1, 16, {"adaptive_sampling": {"memory": 4}}, False, id="drawn by what they earned"),
        pytest.param(0.1, 16, {"worst_first": {"share": 0.1}}, False, id="the worst alone"),
    ],
)
def test_prompts_come_back_before_the_others_had_their_turn(
    epoch: float, revisited: int, train: dict[str, Any], speaks: bool
) -> None:
    rows = course(epoch=(epoch, epoch), prompts__revisited=(revisited, revisited), num_prompts_drawn=(16, 16))
    assert (of("prompts_come_back", rows, {"train": train}) is not None) == speaks


@pytest.mark.parametrize(
    ("share", "equal", "change", "speaks"),
    [
        pytest.param(0.25, 1.0, 1e-3, True, id="equal in updates that follow another"),
        pytest.param(0.25, 0.3, 1e-3, False, id="equal in the first alone, and where a gradient was 0"),
        pytest.param(1.0, 1.0, 1e-3, False, id="one update a batch"),
        pytest.param(0.25, 1.0, 1e-9, False, id="the weights hardly move"),
    ],
)
def test_a_ratio_compares_the_policy_with_itself_where_it_cannot_be_one(
    share: float, equal: float, change: float, speaks: bool
) -> None:
    rows = course(
        num_steps=10, on_policy_share=(share,) * 2, on_policy_fraction=(equal,) * 2, weights__change=(change,) * 2
    )
    assert (of("ratio_always_one", rows) is not None) == speaks


def test_the_ratio_of_a_policy_that_is_sure_may_always_be_one() -> None:
    """Its log-probs are exactly 0 before an update and after it, while weight decay goes on changing the weights."""
    rows = course(on_policy_share=(0.25, 0.25), on_policy_fraction=(1.0, 1.0), weights__change=(1e-4, 1e-4))
    assert of("ratio_always_one", [row | {"surprisal": 1e-6} for row in rows]) is None
    assert of("ratio_always_one", [row | {"surprisal": 0.5} for row in rows]) is not None


@pytest.mark.parametrize(
    ("admitted", "kind", "side", "speaks"),
    [
        pytest.param(0.4, "informative", None, True, id="as many as are flat, and none that differs"),
        pytest.param(0.4, "all", None, False, id="nothing is left out"),
        pytest.param(0.4, "informative", 0.0, False, id="better and worse members train"),
        pytest.param(0.6, "informative", None, False, id="more than are flat"),
    ],
)
def test_an_admission_keeps_flat_groups_alone(admitted: float, kind: str, side: float | None, speaks: bool) -> None:
    rows = course(
        groups__admitted=(admitted,) * 2,
        frac_reward_zero_std=(0.4, 0.4),
        loss_pg=(0.0, 0.0),
        advantages_std=(0.5, 0.5),
    )
    for row in rows if side is not None else ():
        row["zero_gradient_fraction/positive"] = side
    settings = {"objective": {"admission": {"kind": kind}}}
    assert (of("admission_rejects", rows, settings) is not None) == speaks


@pytest.mark.parametrize(
    ("stuck", "rate", "reward", "severity"),
    [
        pytest.param(0.9, 1e-5, (0.5, 0.5), "warning", id="most weights stay"),
        pytest.param(0.9, 1e-5, (0.1, 0.9), "note", id="what is trained is enough"),
        pytest.param(0.3, 1e-5, (0.5, 0.5), None, id="most weights move"),
        pytest.param(0.9, 0.0, (0.5, 0.5), None, id="a rate of 0 moves none"),
        pytest.param(1.0, 1e-5, (0.5, 0.5), None, id="none moves: weights_unchanged"),
    ],
)
def test_steps_round_away(stuck: float, rate: float, reward: tuple[float, float], severity: str | None) -> None:
    said = of("steps_round_away", course(weights__stuck=(stuck,) * 2, learning_rate=(rate,) * 2, reward=reward))
    assert (None if said is None else said.severity) == severity


@pytest.mark.parametrize(
    ("wrong", "right", "speaks"),
    [
        pytest.param((0.5, 0.5), (0.0, 0.45), True, id="half of the prompts took no part"),
        pytest.param((0.5, 0.1), (0.0, 0.85), False, id="more and more prompts are earned"),
        pytest.param((0.2, 0.5), (0.0, 0.45), False, id="the policy loses prompts"),
        pytest.param((0.5, 0.5), (0.45, 0.45), False, id="nothing was learnt here: a sure policy"),
        pytest.param((0.5, 0.5), (0.0, 0.25), False, id="the others are still being learnt"),
        pytest.param((0.1, 0.1), (0.0, 0.9), False, id="few are out of reach"),
    ],
)
def test_prompts_that_never_earn_while_all_others_are_learnt(
    wrong: tuple[float, float], right: tuple[float, float], speaks: bool
) -> None:
    rows = course(groups__all_wrong=wrong, groups__all_right=right)
    for row in rows[40:]:
        row["groups/all_right"] = right[1]
    assert (of("prompts_never_earn", rows) is not None) == speaks


HELD_OUT = {"domain": {"data": {"num_held_out": 200}}}


def stage(settings: dict[str, Any] | None = None, **evaluations: list[float]) -> Stage:
    """A stage whose members' rewards have a standard deviation of 0.5, with these evaluations, one every ten steps."""
    watched = Stage("grpo", settings)
    for place in range(max(map(len, evaluations.values()))):
        watched.add({"step": 10 * place, **{f"eval/{k.replace('__', '/')}": v[place] for k, v in evaluations.items()}})
        for step in range(1, 10):
            watched.add({"step": 10 * place + step, "reward": 0.4, "rewards_std": 0.5})
    return watched


def test_luck_is_the_error_of_a_difference_of_two_means() -> None:
    watched = stage(HELD_OUT, greedy__reward=[0.2, 0.2])
    assert num_evaluated(watched) == 200
    assert luck(watched) == pytest.approx(0.05)
    assert luck(stage(greedy__reward=[0.2, 0.2])) == 0.0


@pytest.mark.parametrize(
    ("settings", "evaluations", "stays"),
    [
        pytest.param(HELD_OUT, {"greedy__reward": [0.2, 0.29]}, True, id="within two errors"),
        pytest.param(HELD_OUT, {"greedy__reward": [0.2, 0.31]}, False, id="beyond them"),
        pytest.param({}, {"greedy__reward": [0.2, 0.21]}, False, id="of unknown size"),
        pytest.param({}, {"greedy__reward": [0.2, 0.2]}, True, id="the same"),
        pytest.param(HELD_OUT, {"greedy__reward": [0.2, 0.31], "a__reward": [0.2, 0.2]}, True, id="one of two by luck"),
        pytest.param(HELD_OUT, {"greedy__reward": [0.2]}, False, id="not again"),
    ],
)
def test_a_rise_within_luck_is_none(settings: dict[str, Any], evaluations: dict[str, list[float]], stays: bool) -> None:
    assert evaluations_stay(stage(settings, **evaluations)) == stays
