"""A reward that never rose and falls: what gives no direction is the cause."""

from __future__ import annotations

import pytest
from tests.look.diagnosis.rule.test_advice import course, finding

from groupwise_look.diagnosis import diagnose, headline


def test_a_reward_that_never_rose_is_the_cause_of_its_fall() -> None:
    rows = course(num_steps=120, reward=(0.5, 0.5), reward_std=(0.4, 0.4))
    for row in rows[40:]:
        row["reward"] = 0.2
    named = headline(diagnose(rows))
    assert named is not None
    assert (named.cause.rule, [finding.rule for finding in named.consequences]) == ("reward_flat", ["reward_falls"])


def test_a_reward_that_had_risen_falls_for_another_cause() -> None:
    rows = course(num_steps=120, reward=(0.2, 0.9), reward_std=(0.4, 0.4))
    for place, row in enumerate(rows[80:]):
        row["reward"] = 0.9 - 0.02 * place
    named = headline(diagnose(rows))
    assert named is not None
    assert named.cause.rule == "reward_falls"


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
