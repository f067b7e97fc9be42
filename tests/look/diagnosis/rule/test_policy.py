"""What rules say of the policy, its steps and its loss."""

from __future__ import annotations

from typing import Any

import pytest
from tests.look.diagnosis.rule.test_rewards import course, finding

from groupwise_look.diagnosis import RULES, diagnose
from groupwise_look.diagnosis.rule.movement import stands_still
from groupwise_look.diagnosis.stage import Stage

BY_NAME = {rule.name: rule for rule in RULES}
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
    assert BY_NAME["kl_runaway"].judge(stage(beta, top=0.08)) is None
    assert BY_NAME["kl_runaway"].judge(stage(beta, top=0.5)) is not None


@pytest.mark.parametrize("beta", [0.1, {"kind": "constant", "value": 0.1}, None])
def test_a_coefficient_that_does_not_follow_the_divergence_allows_none(beta: Any) -> None:
    assert BY_NAME["kl_runaway"].judge(stage(beta, top=0.08)) is not None


@pytest.mark.parametrize(("noise", "speaks"), [(0.01, True), (0.2, False)])
def test_a_rise_that_may_hide_in_noise_is_no_reward_that_stands(noise: float, speaks: bool) -> None:
    watched = Stage("grpo")
    for step in range(60):
        kl = 0.05 if step < 40 else 0.05 + 0.02 * (step - 39)
        watched.add({"step": step, "kl": kl, "reward": 1 + noise * (-1) ** step, "reward_std": 0.5})
    assert (BY_NAME["kl_runaway"].judge(watched) is not None) == speaks


@pytest.mark.parametrize(("against", "speaks"), [("reference", True), ("behaviour", False)])
def test_a_mean_over_what_another_policy_sampled_may_be_negative(against: str, speaks: bool) -> None:
    watched = Stage("grpo", {"objective": {"divergence": {"kind": "k1", "against": against}}})
    for step in range(12):
        watched.add({"step": step, "kl": -0.1 - 0.01 * step})
    assert (BY_NAME["divergence_negative"].judge(watched) is not None) == speaks


@pytest.mark.parametrize(("kl", "share", "gain"), [(0.0, 1.0, 0.0), (0.5, 0.25, 0.0), (0.5, 1.0, 0.05)])
def test_a_reference_that_is_the_policy_or_does_no_harm_is_no_finding(kl: float, share: float, gain: float) -> None:
    watched = Stage("grpo")
    for step in range(12):
        watched.add({"step": step, "kl": kl, "on_policy_share": share, "reward": 1 + gain * step + 0.01 * (step % 2)})
    assert BY_NAME["reference_elsewhere"].judge(watched) is None
    for step in range(12, 24):
        watched.add({"step": step, "kl": 0.5, "on_policy_share": 1.0, "reward": 0.0})
    assert (BY_NAME["reference_elsewhere"].judge(watched) is not None) == (kl > 0.1 and share == 1)


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


@pytest.mark.parametrize(("cut", "limit", "said"), [(0.0, 2, True), (0.9, 2, False), (0.9, 8, True)])
def test_members_that_are_cut_off_are_short_for_that(cut: float, limit: int, said: bool) -> None:
    rows = course(num_steps=10, completions__mean_length=(2.0, 2.0), completions__clipped_ratio=(cut, cut))
    before = {"step": 0, "stage": "grpo", "eval/sampled/length": 8.0}
    settings = {"domain": {"sampling": {"max_new_tokens": limit}}}
    assert ("decisions_left_out" in {found.rule for found in diagnose([before, *rows], settings)}) == said


@pytest.mark.parametrize(
    ("last", "gain", "evaluated", "said"),
    [
        pytest.param(0.02, 0.0, 0.5, True, id="learnt, and nothing earned"),
        pytest.param(0.05, 0.0, 0.5, False, id="half learnt"),
        pytest.param(0.02, 0.2, 0.5, False, id="the reward rises"),
        pytest.param(0.02, 0.0, 0.6, False, id="it is evaluated higher"),
        pytest.param(0.02, 0.0, None, False, id="it is not evaluated"),
    ],
)
def test_a_term_that_is_learnt_alone(last: float, gain: float, evaluated: float | None, said: bool) -> None:
    rows = course(num_steps=40, advantages_std=(0.7, 0.7), frac_reward_zero_std=(0.3, 0.3), reward_std=(0.4, 0.4))
    for place, row in enumerate(rows):
        row["reward"] = 0.5 + gain * (place >= 20) + 0.02 * (-1) ** place
        row["loss_sup"] = 0.1 if place < 5 else last
    before = {"step": 0, "stage": "grpo", "eval/a/reward": 0.5}
    if evaluated is not None:
        rows[-1]["eval/a/reward"] = evaluated
    assert ("policy_term_drowned" in {found.rule for found in diagnose([before, *rows])}) == said


@pytest.mark.parametrize("term", ["loss_sup", "loss_l2"])
def test_a_loss_that_falls_with_its_coefficient_or_has_no_targets_is_not_learnt(term: str) -> None:
    rows = course(num_steps=40, advantages_std=(0.7, 0.7), frac_reward_zero_std=(0.3, 0.3), reward_std=(0.4, 0.4))
    for place, row in enumerate(rows):
        share = max(0.05, 1 - place / 20)
        row |= {"reward": 0.5 + 0.02 * (-1) ** place, term: 0.1 * share}
        row |= {"lambda_sup": share} if term == "loss_sup" else {}
    rows[0]["eval/a/reward"] = rows[-1]["eval/a/reward"] = 0.5
    assert "policy_term_drowned" not in {found.rule for found in diagnose(rows)}


@pytest.mark.parametrize(
    ("every", "num_steps", "said"), [(1, 5, True), (10, 40, True), (10, 20, False), (0, 40, False)]
)
def test_three_times_are_enough_however_far_apart(every: int, num_steps: int, said: bool) -> None:
    rows = course(num_steps=num_steps, weights__change=(0.01, 0.01))
    for row in rows:
        if every and row["step"] % every == 0:
            row["weights/rewritten"] = 0.002
    assert ("weights_rewritten" in {finding.rule for finding in diagnose(rows)}) == said


NARROW = {"objective": {"trust": {"kind": "clip", "low": 1e-6, "high": 1e-6}}}


@pytest.mark.parametrize(("gap", "rules"), [(1.2e-7, []), (9e-7, []), (2e-6, ["ratio_not_one"])])
def test_rounding_is_no_other_policy_however_narrow_the_region(gap: float, rules: list[str]) -> None:
    rows = course(sampling__rescoring_difference__mean=(gap, gap))
    assert [finding.rule for finding in diagnose(rows, NARROW)] == rules


def test_the_width_of_the_region_is_the_scale_beyond_rounding() -> None:
    rows = course(sampling__rescoring_difference__mean=(1e-3, 1e-3))
    assert diagnose(rows, {"objective": {"trust": {"low": 0.2, "high": 0.2}}}) == []
    assert [finding.rule for finding in diagnose(rows, {"objective": {"trust": {"low": 3e-4, "high": 4e-4}}})] == [
        "ratio_not_one"
    ]


@pytest.mark.parametrize(("clipped", "said"), [(0.42, True), (0.36, False)])
def test_a_region_of_no_width_stops_more_than_half(clipped: float, said: bool) -> None:
    rows = course(num_steps=20, clip_ratio__region_mean=(clipped, clipped), on_policy_share=(0.25, 0.25))
    assert ("clip_mostly_acts" in {found.rule for found in diagnose(rows)}) == said


@pytest.mark.parametrize(("end", "severity"), [(0.5, "warning"), (0.9, "note")])
def test_a_rate_of_zero_is_named(end: float, severity: str) -> None:
    rows = course(num_steps=40, reward=(0.5, end))
    for place, row in enumerate(rows):
        row["learning_rate"] = 1e-3 if place < 2 else 0.0
    said = finding("learning_rate_too_low", rows)
    assert (said.severity, said.what) == (
        severity,
        "The learning rate has been 0 for 20 steps (0.001 in the first step).",
    )
    assert "num_steps" in said.advice


def test_a_schedule_that_ends_with_its_stage_is_no_fault() -> None:
    assert diagnose(course(num_steps=40, reward=(0.5, 0.5), learning_rate=(1e-3, 0.0))) == []


@pytest.mark.parametrize(
    ("loss", "change", "rate", "gain", "evaluated", "said"),
    [
        pytest.param(2.5, 3.0, 1.0, 0.0, 0.5, True, id="worse in every term"),
        pytest.param(1.5, 3.0, 1.0, 0.0, 0.5, False, id="the loss rises by half"),
        pytest.param(2.5, 1.0, 1.0, 0.0, 0.5, False, id="steps as large"),
        pytest.param(2.5, 3.0, 3.0, 0.0, 0.5, False, id="the rate rises as well"),
        pytest.param(2.5, 3.0, 1.0, 0.2, 0.5, False, id="the reward rises"),
        pytest.param(2.5, 3.0, 1.0, 0.0, 0.7, False, id="it is evaluated higher"),
    ],
)
def test_steps_that_grow_and_make_every_term_worse_are_too_large(
    loss: float, change: float, rate: float, gain: float, evaluated: float, said: bool
) -> None:
    rows = course(num_steps=60, reward_std=(0.4, 0.4))
    for place, row in enumerate(rows):
        late = place >= 10
        row["reward"] = 0.5 + gain * (place >= 30) + 0.02 * (-1) ** place
        row["loss_sup"] = 0.01 * (loss if late else 1)
        row["weights/change"] = 1e-3 * (change if late else 1)
        row["learning_rate"] = 1e-3 * (rate if late else 1)
    before = {"step": 0, "stage": "grpo", "eval/a/reward": 0.5}
    rows[-1]["eval/a/reward"] = evaluated
    assert ("learning_rate_too_high" in {found.rule for found in diagnose([before, *rows])}) == said


@pytest.mark.parametrize(("last", "end", "said"), [(0.1, 4e-3, True), (0.1, 1.5e-3, False), (0.5, 4e-3, False)])
def test_a_reward_that_falls_while_the_rate_rises(last: float, end: float, said: bool) -> None:
    rows = course(num_steps=60, reward_std=(0.4, 0.4))
    for place, row in enumerate(rows):
        row["reward"] = (0.6 if place < 20 else last) + 0.02 * (-1) ** place
        row["learning_rate"] = 1e-3 if place < 20 else end
    assert ("learning_rate_too_high" in {found.rule for found in diagnose(rows)}) == said


def test_a_policy_of_the_same_surprisal_whose_weights_have_moved_does_not_stand_still() -> None:
    def stands(change: float) -> bool:
        stage = Stage("grpo")
        for step in range(40):
            stage.add({"step": step, "surprisal": 0.5, "updates/taken": 1.0, "weights/change": change})
        return stands_still(stage)

    assert (stands(1e-4), stands(1e-3)) == (True, False)


@pytest.mark.parametrize(("change", "evaluated", "said"), [(0.3, 0.2, True), (0.3, 0.35, False), (0.01, 0.2, False)])
def test_an_update_that_breaks_the_policy_is_seen_in_evaluations_too(
    change: float, evaluated: float, said: bool
) -> None:
    rows = course(num_steps=20, reward=(0.3, 0.3), reward_std=(0.4, 0.4), weights__change=(change, 0.01))
    rows[-1]["eval/a/reward"] = evaluated
    before = {"step": 0, "stage": "grpo", "eval/a/reward": 0.5}
    assert ("learning_rate_too_high" in {found.rule for found in diagnose([before, *rows])}) == said
    # Without a spread nothing says how much of a fall is one.
    rows[0]["reward_std"] = 0.0
    assert "learning_rate_too_high" not in {found.rule for found in diagnose([before, *rows])}


def test_a_supervised_loss_that_grows_by_its_coefficient_is_no_worse() -> None:
    rows = course(num_steps=60, reward_std=(0.4, 0.4), weights__change=(1e-3, 3e-3), learning_rate=(1e-3, 1e-3))
    for place, row in enumerate(rows):
        coefficient = min(1.0, 0.1 + place / 30)
        row |= {"reward": 0.5 + 0.02 * (-1) ** place, "lambda_sup": coefficient, "loss_sup": 0.01 * coefficient}
    rows[0]["eval/a/reward"] = rows[-1]["eval/a/reward"] = 0.5
    assert "learning_rate_too_high" not in {found.rule for found in diagnose(rows)}
