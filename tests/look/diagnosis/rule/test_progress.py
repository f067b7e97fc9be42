"""What rules say of a reward that stands or falls, and of a run that ends."""

from __future__ import annotations

from typing import Any

import pytest
from tests.look.diagnosis.rule.test_rewards import course, finding

from groupwise_look.diagnosis import RULES, diagnose
from groupwise_look.diagnosis.rule.rising import rise
from groupwise_look.diagnosis.stage import Stage


def flat_after(num_steps: int, rise: float = 0.0, evaluations: tuple[float, float] | None = None) -> bool:
    """Whether a reward that rises by this, with some noise from step to step, is called flat."""
    rows = course(num_steps=num_steps, reward_std=(0.4, 0.4), surprisal=(0.5, 0.8), updates__taken=(1, 1))
    for place, row in enumerate(rows):
        row["reward"] = 0.2 + rise * (place >= 20) + 0.03 * (-1) ** place
    if evaluations is not None:
        rows = [{"step": 0, "stage": "grpo", "eval/sampled/reward": evaluations[0]}, *rows]
        rows[-1]["eval/sampled/reward"] = evaluations[1]
    return "reward_flat" in {finding.rule for finding in diagnose(rows)}


@pytest.mark.parametrize(
    ("num_steps", "rise", "evaluations", "flat"),
    [
        pytest.param(39, 0.0, (0.2, 0.2), False, id="too early"),
        pytest.param(40, 0.0, None, False, id="no evaluation that agrees"),
        pytest.param(40, 0.03, (0.2, 0.2), False, id="a small rise that is seen"),
        pytest.param(40, 0.0, (0.2, 0.3), False, id="an evaluation that is higher"),
        pytest.param(40, 0.0, (0.2, 0.2), True, id="an evaluation that stays"),
    ],
)
def test_few_steps_are_called_flat_where_no_rise_can_be_hidden(
    num_steps: int, rise: float, evaluations: tuple[float, float] | None, flat: bool
) -> None:
    assert flat_after(num_steps, rise, evaluations) == flat


@pytest.mark.parametrize(
    ("change", "rate", "gradient", "severity"),
    [
        pytest.param((1e-3, 1e-5), (1e-3, 5e-4), (0.1, 0.1), "note", id="steps dwindle"),
        pytest.param((1e-3, 1e-5), (1e-3, 1e-5), (0.1, 0.1), "warning", id="so does the rate"),
        pytest.param((1e-3, 1e-5), (1e-3, 5e-4), (0.1, 0.01), "warning", id="so does the gradient"),
        pytest.param((1e-3, 5e-4), (1e-3, 5e-4), (0.1, 0.1), "warning", id="steps as large"),
    ],
)
def test_a_policy_whose_steps_dwindle_is_no_alarm_of_its_reward(
    change: tuple[float, float], rate: tuple[float, float], gradient: tuple[float, float], severity: str
) -> None:
    rows = course(num_steps=60, reward_std=(0.4, 0.4), updates__taken=(1, 1), surprisal=(0.5, 0.8))
    for place, row in enumerate(rows):
        row["reward"] = 0.2 + 0.03 * (-1) ** place
        late = place >= 30
        row |= {"weights/change": change[late], "learning_rate": rate[late], "grad_norm": gradient[late]}
    rows[0]["eval/sampled/reward"] = rows[-1]["eval/sampled/reward"] = 0.2
    assert next(finding.severity for finding in diagnose(rows) if finding.rule == "reward_flat") == severity


@pytest.mark.parametrize(
    ("newest", "holds"),
    [
        pytest.param([0.23, 0.17], True, id="it stands"),
        pytest.param([0.4, 0.05], True, id="noise that could hide a rise"),
        pytest.param([0.36, 0.16], False, id="a rise of two to three errors"),
        pytest.param([0.33, 0.27], False, id="a rise beyond doubt"),
    ],
)
def test_a_reward_that_was_flat_is_so_until_a_rise_is_seen(newest: list[float], holds: bool) -> None:
    rows = course(num_steps=60, reward_std=(0.4, 0.4), surprisal=(0.5, 0.8), updates__taken=(1, 1))
    for place, row in enumerate(rows):
        row["reward"] = newest[place % 2] if place >= 40 else 0.2 + 0.03 * (-1) ** place
    rows[0]["eval/sampled/reward"] = rows[39]["eval/sampled/reward"] = 0.2
    assert finding("reward_flat", rows).holds == holds


def test_a_rate_that_was_zero_at_first_says_nothing_of_steps_that_dwindle() -> None:
    rows = course(num_steps=60, reward_std=(0.4, 0.4), updates__taken=(1, 1), surprisal=(0.5, 0.8))
    for place, row in enumerate(rows):
        row |= {"reward": 0.2 + 0.03 * (-1) ** place, "learning_rate": 1e-3 * (place >= 5), "grad_norm": 0.1}
        row |= {"weights/change": 1e-3} if place >= 5 else {}
    rows[0]["eval/sampled/reward"] = rows[-1]["eval/sampled/reward"] = 0.2
    assert finding("reward_flat", rows).severity == "warning"


def alarms(scores: list[float], rule: dict[str, Any] | None, goal: str = "max") -> list[str]:
    """What is said of a run that was evaluated before its first step and after each."""
    settings = {"train": {"metric": "greedy/correct", "metric_goal": goal, "early_stopping": rule}}
    rows: list[dict[str, Any]] = [{"step": 0, "eval/greedy/correct": scores[0]}]
    rows += [{"step": step, "reward": 0.5, "eval/greedy/correct": score} for step, score in enumerate(scores[1:], 1)]
    return [finding.rule for finding in diagnose(rows, settings) if finding.severity != "note" and finding.holds]


@pytest.mark.parametrize(
    ("scores", "rule", "said"),
    [
        pytest.param([0.5, 0.6], {"patience": 1, "min_gain": 1.0}, True, id="more than can be gained"),
        pytest.param([0.5, 0.5, 0.4], {"patience": 2, "min_gain": 0.0}, True, id="nothing gained"),
        pytest.param([0.5, 0.5], {"patience": 2, "min_gain": 0.0}, False, id="it still waits"),
        pytest.param([0.5, 0.6, 0.5], {"patience": 1, "min_gain": 0.01}, False, id="it had gained"),
        pytest.param([0.5, 0.5, 0.4], {"patience": 1, "min_gain": 0.0}, False, id="the stage went on"),
        pytest.param([0.5] * 6, {"min_gain": 0.01}, True, id="the patience that is not written"),
        pytest.param([0.5] * 5, {"min_gain": 0.01}, False, id="it waits for five"),
        pytest.param([0.5, 0.5, 0.4], None, False, id="no early stopping"),
    ],
)
def test_a_stop_without_any_gain_is_said(scores: list[float], rule: dict[str, Any] | None, said: bool) -> None:
    assert ("stopped_early" in alarms(scores, rule)) == said


def test_a_metric_that_should_fall_gains_by_falling() -> None:
    rule = {"patience": 1, "min_gain": 0.05}
    assert "stopped_early" in alarms([0.5, 0.6], rule, "min")
    assert "stopped_early" not in alarms([0.5, 0.4], rule, "min")


@pytest.mark.parametrize(
    ("losses", "rewards", "said"),
    [
        pytest.param([0.5, 0.4, 0.6, 0.7], [0.2, 0.2, 0.3, 0.4], True, id="what counts as worse is what is paid"),
        pytest.param([0.5, 0.4, 0.6, 0.7], [0.2, 0.4, 0.3, 0.4], False, id="the reward stands as well"),
        pytest.param([0.5, 0.4, 0.6, 0.3], [0.2, 0.2, 0.3, 0.4], False, id="it gains"),
        pytest.param([0.5, 0.4, 0.6], [0.2, 0.2, 0.4], False, id="it still waits"),
    ],
)
def test_a_stop_while_the_reward_rises_is_said(losses: list[float], rewards: list[float], said: bool) -> None:
    settings = {"train": {"metric": "a/loss", "metric_goal": "min", "early_stopping": {"patience": 2}}}
    rows: list[dict[str, Any]] = [
        {"step": step, "eval/a/loss": loss, "eval/a/reward": reward} | ({"reward": 0.5} if step else {})
        for step, (loss, reward) in enumerate(zip(losses, rewards, strict=True))
    ]
    found = [finding for finding in diagnose(rows, settings) if finding.holds and finding.rule == "stopped_early"]
    assert bool(found) == said
    # The metric had gained before: what the rule says of a stage without any gain would be false.
    assert not [
        finding
        for finding in found
        if finding.means == next(rule.means for rule in RULES if rule.name == "stopped_early")
    ]


def stage(rise_by: float = 0.0, settings: dict[str, Any] | None = None, **metrics: float) -> Stage:
    """40 steps whose reward changes by 0.02 from step to step, around 0.5 and then around `rise_by` more."""
    watched = Stage("grpo", settings)
    named = {name.replace("__", "/"): value for name, value in metrics.items()}
    for step in range(40):
        reward = 0.5 + rise_by * (step >= 20) + 0.02 * (-1) ** step
        watched.add({"step": step, "reward": reward, "reward_std": 0.4, **named})
    return watched


def test_the_most_that_it_has_risen_is_the_difference_and_two_errors() -> None:
    seen = rise(stage(0.03), 20)
    assert seen is not None
    # The standard deviation of 20 values of which half lie 0.02 above and half below their mean is 0.02 sqrt(20 / 19).
    assert seen.most == pytest.approx(0.03 + 2 * 0.02 * (2 / 19) ** 0.5)


@pytest.mark.parametrize(
    ("kl", "length", "reach"),
    [(0.02, 1.0, 0.2), (0.02, 9.0, 0.6), (0.5, 4.0, 2.0), (0.0, 4.0, 0.0), (-0.1, 4.0, 0.0)],
)
def test_what_a_policy_could_gain_is_the_root_of_twice_the_divergence_of_a_member(
    kl: float, length: float, reach: float
) -> None:
    seen = rise(stage(kl=kl, completions__mean_length=length), 20)
    assert seen is not None
    assert seen.reach == pytest.approx(reach)


def test_a_reward_that_stands_shows_nothing_where_the_policy_hardly_left_its_reference() -> None:
    # 0.013 nats at most beside 0.15 * 0.4 * min(1, sqrt(2 KL 4)).
    near, far = (rise(stage(kl=kl, completions__mean_length=4.0), 20) for kl in (0.001, 0.1))
    assert near is not None
    assert far is not None
    assert (near.is_none, far.is_none) == (False, True)


@pytest.mark.parametrize(
    ("settings", "known"),
    [
        pytest.param({}, True, id="default"),
        pytest.param({"reference": {"kind": "frozen"}}, True, id="frozen"),
        pytest.param({"reference": {"kind": "ema"}}, False, id="follows the policy"),
        pytest.param({"objective": {"divergence": {"against": "behaviour"}}}, False, id="from the sampler"),
    ],
)
def test_a_divergence_from_what_moves_along_bounds_nothing(settings: dict[str, Any], known: bool) -> None:
    seen = rise(stage(settings=settings, kl=0.001, completions__mean_length=4.0), 20)
    assert seen is not None
    assert (seen.reach is not None) == known
    assert seen.is_none != known


def test_a_tenth_of_the_spread_is_no_rise_where_no_divergence_is_known() -> None:
    below, above = (rise(stage(by), 20) for by in (0.026, 0.028))
    assert below is not None
    assert above is not None
    assert (below.is_none, above.is_none) == (True, False)


def test_groups_without_a_spread_have_no_rise_to_look_for() -> None:
    watched = Stage("grpo")
    for step in range(40):
        watched.add({"step": step, "reward": 0.5, "reward_std": 0.0})
    assert rise(watched, 20) is None
