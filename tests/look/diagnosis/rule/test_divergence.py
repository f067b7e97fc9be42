"""When a policy runs away from its reference, and when its coefficient lets it go."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise_look.diagnosis import diagnose
from groupwise_look.diagnosis.rule.divergence import DIVERGENCE_NEGATIVE, KL_RUNAWAY, REFERENCE_ELSEWHERE
from groupwise_look.diagnosis.stage import Stage

MULTIPLICATIVE = {"kind": "multiplicative", "initial": 0.1, "lower": 0.01, "upper": 0.1}
ADAPTIVE = {"kind": "adaptive", "initial": 0.1, "target": 0.1, "horizon": 10}


def stage(beta: Any, top: float) -> Stage:
    """60 steps whose KL stays at a tenth of `top`, then grows to it, at a reward that stands."""
    watched = Stage("grpo", {"objective": {"divergence": {"kind": "exact", "beta": beta}}})
    for step in range(60):
        grown = top * (0.1 if step < 40 else 0.1 + 0.9 * (step - 39) / 20)
        watched.add({"step": step, "kl": grown * (1 + 0.01 * (step % 3)), "reward": 1.0 + 0.1 * (step % 2)})
    return watched


@pytest.mark.parametrize("beta", [MULTIPLICATIVE, ADAPTIVE], ids=lambda beta: beta["kind"])
def test_a_divergence_within_the_bound_of_its_coefficient_does_not_run_away(beta: dict[str, Any]) -> None:
    assert KL_RUNAWAY.look(stage(beta, top=0.08)) is None
    assert KL_RUNAWAY.look(stage(beta, top=0.5)) is not None


@pytest.mark.parametrize("beta", [0.1, {"kind": "constant", "value": 0.1}, None])
def test_a_coefficient_that_does_not_follow_the_divergence_allows_none(beta: Any) -> None:
    assert KL_RUNAWAY.look(stage(beta, top=0.08)) is not None


@pytest.mark.parametrize(("noise", "speaks"), [(0.01, True), (0.2, False)])
def test_a_rise_that_may_hide_in_noise_is_no_reward_that_stands(noise: float, speaks: bool) -> None:
    watched = Stage("grpo")
    for step in range(60):
        kl = 0.05 if step < 40 else 0.05 + 0.02 * (step - 39)
        watched.add({"step": step, "kl": kl, "reward": 1 + noise * (-1) ** step, "reward_std": 0.5})
    assert (KL_RUNAWAY.look(watched) is not None) == speaks


@pytest.mark.parametrize(("against", "speaks"), [("reference", True), ("behaviour", False)])
def test_a_mean_over_what_another_policy_sampled_may_be_negative(against: str, speaks: bool) -> None:
    watched = Stage("grpo", {"objective": {"divergence": {"kind": "k1", "against": against}}})
    for step in range(12):
        watched.add({"step": step, "kl": -0.1 - 0.01 * step})
    assert (DIVERGENCE_NEGATIVE.look(watched) is not None) == speaks


@pytest.mark.parametrize(("kl", "share", "gain"), [(0.0, 1.0, 0.0), (0.5, 0.25, 0.0), (0.5, 1.0, 0.05)])
def test_a_reference_that_is_the_policy_or_does_no_harm_is_no_finding(kl: float, share: float, gain: float) -> None:
    watched = Stage("grpo")
    for step in range(12):
        watched.add({"step": step, "kl": kl, "on_policy_share": share, "reward": 1 + gain * step + 0.01 * (step % 2)})
    assert REFERENCE_ELSEWHERE.look(watched) is None
    for step in range(12, 24):
        watched.add({"step": step, "kl": 0.5, "on_policy_share": 1.0, "reward": 0.0})
    assert (REFERENCE_ELSEWHERE.look(watched) is not None) == (kl > 0.1 and share == 1)


@pytest.mark.parametrize(
    ("earlier", "settings", "speaks"),
    [
        pytest.param({"loss_sup": 1.0}, {}, True, id="made after the warm-up"),
        pytest.param({"reward": 0.0, "kl": 0.1}, {}, False, id="kept from the stage before"),
        pytest.param(
            {"loss_sup": 1.0}, {"domain": {"model": {"lora": {"r": 4}}}, "reference": None}, True, id="adapter"
        ),
        pytest.param(
            {"loss_sup": 1.0},
            {"domain": {"model": {"lora": {"r": 4}}}, "reference": {"kind": "frozen", "adapter": "off"}},
            False,
            id="adapter off",
        ),
    ],
)
def test_a_reference_that_is_older_than_its_stage_is_another_policy(
    earlier: dict[str, float], settings: dict[str, Any], speaks: bool
) -> None:
    rows: list[dict[str, Any]] = [{"step": step, "stage": "first", **earlier} for step in range(12)]
    now = {"kl": 0.5, "on_policy_share": 1.0, "reward": 0.0}
    rows += [{"step": step, "stage": "second", **now} for step in range(12, 24)]
    assert ("reference_elsewhere" in {found.rule for found in diagnose(rows, settings)}) == speaks
