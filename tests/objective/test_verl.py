"""The recorded numbers of verl 0.9's own policy losses and advantage estimators (tests/oracles/record_verl.py), and
where they differ from ours.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.config import validate
from groupwise.objective import Objective
from groupwise.objective.batch import Acted, Batch
from groupwise.records import Rollouts, Scored

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "verl_0_9.json").read_text(encoding="utf-8"))
GIVEN: dict[str, Tensor] = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in GOLDEN["batch"].items()}
WEIGHTS = torch.tensor(GOLDEN["weights"], dtype=torch.float64)
AGGREGATIONS = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "member_mean",
    "seq-mean-token-sum": "member_sum",
    "seq-mean-token-sum-norm": "fixed_length",
}
EVERYONE = torch.arange(6)
WITH_A_TOKEN = GIVEN["mask"].any(1).nonzero()[:, 0]
# verl adds 1e-8 to the length of an answer.
TOLERANCES = {"seq-mean-token-mean": 2e-8, "geo_mean": 2e-8}


def trust(case: dict[str, Any], low: float, high: float) -> dict[str, Any]:
    """verl's settings as a trust region."""
    actor, table = case["actor"], case["policy_loss"]
    name = case["loss"]
    if name == "bypass_mode":
        correction = table["rollout_correction"]
        reinforce = correction["loss_type"] == "reinforce"
        return {"kind": "cispo", "maximum": correction["rollout_is_threshold"]} if reinforce else {"kind": "dual_clip"}
    return {
        "vanilla": {"kind": "dual_clip", "low": low, "high": high, "bound": actor.get("clip_ratio_c", 3.0)},
        "dppo_tv": {"kind": "dppo", "measure": "tv", "threshold": high, "maximum": actor.get("clip_ratio_c", 3.0)},
        "dppo_kl": {"kind": "dppo", "measure": "kl", "threshold": high, "maximum": actor.get("clip_ratio_c", 3.0)},
        "gspo": {"kind": "clip", "low": low, "high": high},
        "sapo": {"kind": "sapo", "tau_pos": actor.get("tau_pos", 1.0), "tau_neg": actor.get("tau_neg", 1.05)},
        "gpg": {"kind": "unbounded", "form": "log_prob"},
        "dro": {"kind": "unbounded", "form": "log_prob"},
        "clip_cov": {
            "kind": "clip_cov",
            "low": low,
            "high": high,
            "share": 1.0,
            "lower": table.get("clip_cov_lb"),
            "upper": table.get("clip_cov_ub"),
        },
        "kl_cov": {"kind": "kl_cov", "share": table.get("kl_cov_ratio"), "coefficient": table.get("ppo_kl_coef")},
        "geo_mean": {"kind": "gmpo", "low": low, "high": high},
        "cispo": {"kind": "cispo", "maximum": 1 + high},
    }[name]


def ours(case: dict[str, Any], **changed: Any) -> Objective:
    """The same loss in our slots."""
    low, high = (case["actor"].get(f"clip_ratio_{side}", 0.2) for side in ("low", "high"))
    aggregation = {"sapo": "member_mean", "geo_mean": "member_mean"}.get(
        case["loss"], AGGREGATIONS[case["loss_agg_mode"]]
    )
    length = {"length": case["whole"].get("loss_scale_factor", 4)} if aggregation == "fixed_length" else {}
    table = {
        "ratio": {"kind": "geometric", "gradient": "token"} if case["loss"] == "gspo" else {"kind": "token"},
        "trust": trust(case, low, high),
        "aggregation": {"kind": aggregation, **length},
    }
    if case["loss"] == "dro":
        table["divergence"] = {"kind": "k2", "against": "behaviour", "beta": case["policy_loss"]["dro_beta"]}
    return validate(Objective, table | changed, source="verl")


def loss_of(objective: Objective, case: dict[str, Any], rows: Tensor = EVERYONE) -> tuple[float, Tensor]:
    """The loss of one update of these members, and its gradient by all log-probs."""
    whole = case["whole"]
    known = whole.get("batch_num_tokens" if objective.aggregation.kind == "token_mean" else "global_batch_size")
    acted = Acted(GIVEN["mask"][rows].bool(), GIVEN["old_log_prob"][rows], member=rows)
    batch = Batch.of(acted, GIVEN["advantage"][rows][:, None], objective.init())
    plan = objective.plan(
        batch, reduce=lambda local: local if known is None else torch.tensor(float(known), dtype=torch.float64)
    )
    if case["weights"]:
        plan = replace(plan, weight=plan.weight * WEIGHTS[rows])
    log_prob = GIVEN["log_prob"].clone().requires_grad_()
    total = objective.loss(Scored(log_prob[rows]), replace(plan, reduce=lambda local: local)).total * whole.get(
        "dp_size", 1
    )
    return float(total.detach()), torch.autograd.grad(total, log_prob)[0]


def agree(found: tuple[float, Tensor], case: dict[str, Any], rows: Tensor = EVERYONE) -> bool:
    tolerance = TOLERANCES.get(
        case["loss"], TOLERANCES.get("seq-mean-token-mean" if case["loss"] == "sapo" else case["loss_agg_mode"], 1e-10)
    )
    expected = torch.tensor(case["gradient"], dtype=torch.float64)
    close = (found[1] - expected).abs() <= tolerance * expected.abs().clamp(min=1)
    return abs(found[0] - case["value"]) <= tolerance * max(1.0, abs(case["value"])) and bool(close[rows].all())


def differs(case: dict[str, Any]) -> str | None:
    """Where verl's number is another, and why."""
    low, high = (case["actor"].get(f"clip_ratio_{side}", 0.2) for side in ("low", "high"))
    if case["loss"] == "cispo" and low < 1:
        return "verl bounds CISPO's weight below as well, at 1 - clip_ratio_low; the paper and TRL do not"
    if case["loss"].startswith("dppo") and low != high:
        return "verl has a threshold for either side, the paper and ours one"
    if (case["loss_agg_mode"].startswith("seq") or case["loss"] == "sapo") and not case["whole"]:
        return "without the counts of the step verl leaves out an answer that has no token"
    return None


def identity(case: dict[str, Any]) -> str:
    settings = {"actor": case["actor"], **case["policy_loss"], "whole": bool(case["whole"]), "weights": case["weights"]}
    return f"{case['loss']} {case['loss_agg_mode']} " + " ".join(
        f"{key}={value}" for key, value in settings.items() if value
    )


def cases(reason: str | None) -> list[dict[str, Any]]:
    return [
        case for case in GOLDEN["losses"] if (differs(case) is None if reason is None else reason in str(differs(case)))
    ]


@pytest.mark.parametrize("case", cases(None), ids=identity)
def test_recorded_value_and_gradient(case: dict[str, Any]) -> None:
    assert agree(loss_of(ours(case), case), case)


@pytest.mark.parametrize("case", cases("leaves out an answer"), ids=identity)
def test_verls_mean_over_answers_leaves_out_those_without_a_token(case: dict[str, Any]) -> None:
    assert agree(loss_of(ours(case), case, WITH_A_TOKEN), case)
    assert not agree(loss_of(ours(case), case), case)


@pytest.mark.parametrize("case", cases("either side"), ids=identity)
def test_verls_dppo_has_a_threshold_for_either_side(case: dict[str, Any]) -> None:
    for sign, side in ((1, "high"), (-1, "low")):
        rows = (sign * GIVEN["advantage"] > 0).nonzero()[:, 0]
        table = trust(case, 0.0, case["actor"][f"clip_ratio_{side}"])
        found = loss_of(ours(case, trust=table), case)[1]
        assert torch.allclose(
            found[rows], torch.tensor(case["gradient"], dtype=torch.float64)[rows], rtol=0, atol=1e-10
        )
    # On the recorded answers no token's KL lies between the two thresholds.
    assert agree(loss_of(ours(case), case), case) == (case["loss"] == "dppo_kl")


@pytest.mark.parametrize("case", cases("bounds CISPO's weight below"), ids=identity)
def test_verls_cispo_bounds_the_weight_below(case: dict[str, Any]) -> None:
    found, expected = loss_of(ours(case), case)[1], torch.tensor(case["gradient"], dtype=torch.float64)
    ratio = (GIVEN["log_prob"] - GIVEN["old_log_prob"]).exp()
    low = (ratio < 0.8) & GIVEN["mask"].bool() & (GIVEN["advantage"][:, None] != 0)
    assert low.any()
    assert torch.allclose(found[~low], expected[~low], rtol=0, atol=1e-10)
    assert torch.allclose(found[low] / ratio[low] * 0.8, expected[low], rtol=0, atol=1e-10)


def test_verls_own_default_truncates_dppo_where_the_paper_does_not() -> None:
    """`clip_ratio_c` is 3 in verl's actor unless set, meant for the dual clip; the 20 that its DPPO would take is never
    reached.
    """
    assert Objective.preset("dppo_tv").trust.maximum == 20.0
    case = next(
        case for case in GOLDEN["losses"] if case["loss"] == "dppo_tv" and case["actor"].get("clip_ratio_c") == 1.2
    )
    assert agree(loss_of(ours(case), case), case)
    assert not agree(loss_of(ours(case | {"actor": case["actor"] | {"clip_ratio_c": 20.0}}), case), case)


def test_every_policy_loss_is_recorded() -> None:
    names = [
        "vanilla",
        "dppo_tv",
        "dppo_kl",
        "gspo",
        "sapo",
        "gpg",
        "clip_cov",
        "kl_cov",
        "geo_mean",
        "dro",
        "cispo",
        "bypass_mode",
    ]
    assert sorted({case["loss"] for case in GOLDEN["losses"]}) == sorted(names)
    assert len({identity(case) for case in GOLDEN["losses"]}) == len(GOLDEN["losses"]) == 43
    assert len({round(case["value"], 9) for case in GOLDEN["losses"]}) > 30
    assert GOLDEN["head"]["source"] == "verl 0.9.1, verl.trainer.ppo.core_algos"


# Advantages

ANSWERS = GOLDEN["answers"]
LENGTH = torch.tensor(ANSWERS["length"])
MASK = torch.arange(4) < LENGTH[:, None]
EXACT: dict[str, dict[str, Any]] = {
    "rloo": {"kind": "leave_one_out"},
    "rloo_vectorized": {"kind": "leave_one_out"},
    "opo": {"kind": "length_weighted"},
}
WITHOUT = {"grpo_passk", "remax", "optimal_token_baseline", "tir_optimal_token_baseline"}
"""No counterpart: pass@k's best answer, ReMax's greedy baseline, baselines a token."""


def estimator(name: str, **settings: Any) -> Tensor:
    case = next(
        case for case in GOLDEN["estimators"] if case == {"estimator": name, **settings, "advantage": case["advantage"]}
    )
    return torch.tensor(case["advantage"], dtype=torch.float64)


def advantage(table: dict[str, Any], style: bool = False) -> Tensor:
    """`[B]`, of our advantage on the recorded answers."""
    rewards = {name: torch.tensor(ANSWERS[name]) for name in (("reward", "style") if style else ("reward",))}
    group = torch.tensor(["abc".index(uid) for uid in ANSWERS["uid"]])
    rollouts = Rollouts(group, MASK, torch.zeros(9, 4), rewards, {"style": 0.5} if style else {})
    objective = validate(Objective, {"advantage": table}, source="verl")
    return objective.prepare(rollouts, objective.init()).advantage[:, 0]


def over_tokens(values: Tensor) -> Tensor:
    """Whitened over tokens, in which a long answer counts more than a short one."""
    every = values[:, None].expand(9, 4)[MASK]
    return (values - every.mean()) / every.std()


@pytest.mark.parametrize("name", EXACT)
def test_recorded_advantages(name: str) -> None:
    assert torch.allclose(estimator(name), advantage(EXACT[name])[:, None] * MASK, rtol=0, atol=1e-10)


def test_the_group_z_score_but_for_verls_small_number() -> None:
    value = advantage({"kind": "z_score"})[:, None] * MASK
    assert torch.allclose(estimator("grpo"), value, rtol=1e-5, atol=0)
    assert not torch.allclose(estimator("grpo"), value, rtol=1e-9, atol=0)
    # Its group statistics are fp32 whatever the rewards are: a flat group of 0.7 in fp64 does not come out at 0.
    told_apart = torch.tensor([uid != "c" for uid in ANSWERS["uid"]])
    assert torch.allclose(estimator("grpo_vectorized")[told_apart], value[told_apart], rtol=1e-5, atol=1e-6)
    assert estimator("grpo_vectorized")[~told_apart].max() > 0.01
    assert not value[~told_apart].any()
    assert torch.allclose(
        estimator("grpo", norm_adv_by_std_in_grpo=False),
        advantage({"kind": "centred"})[:, None] * MASK,
        rtol=0,
        atol=1e-10,
    )


@pytest.mark.parametrize(
    ("name", "before", "table", "style"),
    [
        ("reinforce_plus_plus", {"kind": "constant", "value": 0.0}, {"kind": "whiten"}, False),
        ("reinforce_plus_plus_baseline", {"kind": "centred"}, {"kind": "whiten", "baseline": "group"}, False),
        ("gdpo", {"kind": "per_reward", "whiten": False}, {"kind": "per_reward"}, True),
    ],
)
def test_verl_whitens_over_tokens_and_we_over_answers(
    name: str, before: dict[str, Any], table: dict[str, Any], style: bool
) -> None:
    expected = estimator(name)
    # verl's gdpo is fp32 and adds 1e-6 to a standard deviation.
    assert torch.allclose(
        expected, over_tokens(advantage(before, style))[:, None] * MASK, rtol=2e-5 if style else 1e-6, atol=1e-7
    )
    assert not torch.allclose(expected, advantage(table, style)[:, None] * MASK, rtol=1e-2)


def test_gpg_scales_by_the_share_of_answers_with_a_reward() -> None:
    share = sum(reward != 0 for reward in ANSWERS["reward"]) / 9
    assert share < 1
    assert torch.allclose(estimator("gpg") * share, advantage({"kind": "centred"})[:, None] * MASK, rtol=0, atol=1e-10)


def test_gae_without_what_a_critic_has_learned_is_reinforce_plus_plus() -> None:
    """GAE is a critic's: with gamma = lambda = 1 its advantage is the reward less the critic's value, whitened over
    tokens. We have no critic.
    """
    silent, said = estimator("gae", critic="silent"), torch.tensor(ANSWERS["baseline"], dtype=torch.float64)
    assert torch.allclose(silent * MASK, estimator("reinforce_plus_plus") * MASK, rtol=1e-6, atol=1e-7)
    reward = advantage({"kind": "constant", "value": 0.0})
    assert torch.allclose(
        estimator("gae", critic="baseline") * MASK, over_tokens(reward - said)[:, None] * MASK, rtol=1e-6, atol=1e-7
    )


def test_every_estimator_is_recorded_and_compared_or_named_as_missing() -> None:
    compared = {
        *EXACT,
        "grpo",
        "grpo_vectorized",
        "reinforce_plus_plus",
        "reinforce_plus_plus_baseline",
        "gdpo",
        "gpg",
        "gae",
    }
    assert {case["estimator"] for case in GOLDEN["estimators"]} == compared | WITHOUT
