"""Training prompts that pay for something else than evaluated ones."""

from __future__ import annotations

from typing import Any

import pytest
from tests.look.diagnosis.rule.test_advice import course

from groupwise_look.diagnosis import diagnose, headline
from groupwise_look.diagnosis.rule import RULES


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


def test_steps_that_are_too_large_are_the_cause_where_they_are_seen() -> None:
    batch = {"effective_sample_size": (0.2, 0.2), "ratio__p1": (0.1, 0.1), "ratio__p99": (5.0, 5.0)}
    rows = course(num_steps=40, reward=(0.15, 0.15), reward_std=(0.3, 0.3), on_policy_share=(0.5, 0.5), **batch)
    rows[-1]["eval/restored/reward"] = 0.0
    found = headline(diagnose([{"step": 0, "stage": "grpo", "eval/restored/reward": 0.55}, *rows]))
    assert found is not None
    assert found.cause.rule == "learning_rate_too_high", found
    assert "training_unlike_held_out" in {finding.rule for finding in found.consequences}


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
