"""How far a reward has risen at most, and how far a policy of a known KL could have taken it."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise_look.diagnosis.rule.rising import rise
from groupwise_look.diagnosis.stage import Stage


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
