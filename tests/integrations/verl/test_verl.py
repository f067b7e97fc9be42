"""The loss and the advantage of an objective as verl calls them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.objective import Objective
from groupwise.objective.preset import method_names
from groupwise_trainers.verl import advantage_estimator, policy_loss

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "verl_0_9.json").read_text(encoding="utf-8"))
GIVEN: dict[str, Tensor] = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in GOLDEN["batch"].items()}
MODES = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "member_mean",
    "seq-mean-token-sum": "member_sum",
    "seq-mean-token-sum-norm": "fixed_length",
}
WHOLE = [case for case in GOLDEN["losses"] if case["whole"] and case["loss"] in ("vanilla", "gspo", "gpg")]


def actor(mode: str = "token-mean", **keys: Any) -> SimpleNamespace:
    """verl's ActorConfig, as far as a policy loss reads it."""
    return SimpleNamespace(
        **{
            "loss_agg_mode": mode,
            "use_kl_loss": False,
            "entropy_coeff": 0,
            "loss_scale_factor": None,
            "global_batch_info": {},
        }
        | keys
    )


def called(
    objective: Objective, config: SimpleNamespace, rows: Tensor | None = None, weights: Tensor | None = None
) -> tuple[float, Tensor, dict[str, Any]]:
    rows = torch.arange(6) if rows is None else rows
    log_prob = GIVEN["log_prob"].clone().requires_grad_()
    loss, metrics = policy_loss(objective)(
        old_log_prob=GIVEN["old_log_prob"][rows],
        log_prob=log_prob[rows],
        advantages=GIVEN["advantage"][rows][:, None].expand(-1, 4),
        response_mask=GIVEN["mask"][rows].bool(),
        loss_agg_mode=config.loss_agg_mode,
        config=config,
        rollout_is_weights=weights,
    )
    return float(loss.detach()), torch.autograd.grad(loss, log_prob)[0], metrics


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: f"{case['loss']} {case['loss_agg_mode']}")
def test_the_counts_of_the_whole_step_are_verls(case: dict[str, Any]) -> None:
    kind = MODES[case["loss_agg_mode"]]
    length = case["whole"].get("loss_scale_factor", 4)
    preset = {"vanilla": "dual_clip", "gspo": "gspo_token", "gpg": "opo"}[case["loss"]]
    edits: dict[str, Any] = {"aggregation.kind": kind} | (
        {"aggregation.length": length} if kind == "fixed_length" else {}
    )
    if case["loss"] == "gspo":
        edits |= {"trust.low": 0.2, "trust.high": 0.28}
    config = actor(case["loss_agg_mode"], global_batch_info=case["whole"], loss_scale_factor=length)
    value, gradient, _ = called(Objective.preset(preset, **edits), config)
    assert value == pytest.approx(case["value"], abs=2e-8)
    assert torch.allclose(gradient, torch.tensor(case["gradient"], dtype=torch.float64), rtol=0, atol=2e-8)


def test_a_member_wide_region_takes_verls_advantages_of_every_token() -> None:
    case = next(case for case in GOLDEN["losses"] if case["loss"] == "geo_mean")
    value, gradient, _ = called(Objective.preset("gmpo"), actor("seq-mean-token-mean"))
    assert value == pytest.approx(case["value"], abs=2e-8)
    assert torch.allclose(gradient, torch.tensor(case["gradient"], dtype=torch.float64), rtol=0, atol=2e-8)


def test_keys_that_agree_pass_and_metrics_are_plain_numbers_under_our_names() -> None:
    agreeing = actor("seq-mean-token-mean", use_kl_loss=True, kl_loss_type="k3", kl_loss_coef=0.04)
    called(Objective.preset("grpo"), agreeing)
    called(Objective.preset("dr_grpo"), actor("seq-mean-token-sum-norm", loss_scale_factor=1024))
    metrics = called(Objective.preset("cispo"), actor())[2]
    assert {"actor/zero_gradient_fraction/positive", "actor/cispo_clip_ratio"} <= set(metrics)
    assert all(isinstance(value, float) for value in metrics.values())


def test_micro_batches_sum_to_the_step() -> None:
    for name, mode in (("dual_clip", "token-mean"), ("grpo", "seq-mean-token-mean"), ("temporal_decay", "token-mean")):
        objective = Objective.preset(name, **{"divergence.kind": "none"})
        counts = {"dp_size": 1, "batch_num_tokens": int(GIVEN["mask"].sum()), "global_batch_size": 6}
        value, gradient, _ = called(objective, actor(mode))
        parts = [called(objective, actor(mode, global_batch_info=counts), rows) for rows in torch.arange(6).split(2)]
        assert sum(part[0] for part in parts) == pytest.approx(value, abs=1e-12)
        assert torch.allclose(sum(part[1] for part in parts), gradient, rtol=0, atol=1e-12)


def test_verls_weights_for_another_sampler_multiply_each_token() -> None:
    case = next(case for case in GOLDEN["losses"] if case["weights"])
    value, gradient, _ = called(
        Objective.preset("dual_clip"), actor(), weights=torch.tensor(GOLDEN["weights"], dtype=torch.float64)
    )
    assert value == pytest.approx(case["value"], abs=1e-10)
    assert torch.allclose(gradient, torch.tensor(case["gradient"], dtype=torch.float64), rtol=0, atol=1e-10)


OF_IMAGES = ("awm", "diffusion_nft", "flow_dppo", "flow_grpo", "grpo_guard", "source_002")
SERVED = [name for name in method_names() if name not in ("clip_cov", "kl_cov", *OF_IMAGES)]


@pytest.mark.parametrize("name", SERVED)
def test_every_other_preset_is_finite(name: str) -> None:
    from groupwise_trainers.verl.register import keys

    objective = Objective.preset(name)
    said = {
        key.rpartition(".")[2]: value for key, value in keys(objective).items() if key.startswith("actor_rollout_ref")
    }
    value, gradient, _ = called(objective, actor(**{"mode": said.pop("loss_agg_mode"), **said}))
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 0
    assert abs(value) < 100


@pytest.mark.parametrize(
    ("name", "edits", "expected"),
    [
        ("clip_cov", {}, "trust.kind = 'clip_cov' looks at a whole optimiser step"),
        ("grpo_guard", {}, "Scored.mean_shift"),
        ("grpo", {"credit.inverse_step": {}}, "step_size"),
        ("flow_grpo", {}, "divergence.kind = 'exact'"),
        ("flow_dppo", {}, "Scored.old_divergence"),
        ("awm", {"divergence": {"kind": "none"}}, "matching.kind = 'velocity' learns from noised copies"),
        ("gradient_adaptive", {"credit.gradient_adaptive.signal": "score_norm"}, "Scored.score_norm"),
        ("grpo", {"divergence.kind": "k3_unbiased"}, "write divergence.kind as one of k1, abs, k2, k3"),
        ("bnpo", {"credit.top_entropy.share": 0.2}, "leave that credit out"),
        ("grpo+tis", {}, "write correction.kind = 'none' and algorithm.rollout_correction"),
        ("bnpo", {"aggregation.kind": "prompt_mean"}, "aggregation.kind = 'prompt_mean' has no counterpart in verl"),
        ("grpo", {"auxiliary": {"supervised": 0.1}}, "auxiliary.supervised"),
        (
            "grpo",
            {"divergence.beta": {"kind": "linear", "start": 0.1, "end": 0.0, "num_steps": 10}},
            "divergence.beta follows a schedule (linear)",
        ),
    ],
)
def test_what_verl_cannot_give_is_refused(name: str, edits: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=r"write|leave") as error:
        policy_loss(Objective.preset(name, **edits))
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        ("dual_clip", actor("seq-mean-token-mean"), "write actor_rollout_ref.actor.loss_agg_mode=token-mean"),
        ("dual_clip", actor(use_kl_loss=True), "write actor_rollout_ref.actor.use_kl_loss=false"),
        ("dual_clip", actor(entropy_coeff=0.1), "entropy_coeff is 0.1, and the objective 'dual_clip' says 0.0"),
        ("grpo", actor("seq-mean-token-mean"), "write actor_rollout_ref.actor.use_kl_loss=true"),
        (
            "grpo",
            actor("seq-mean-token-mean", use_kl_loss=True, kl_loss_type="k3", kl_loss_coef=0.1),
            "kl_loss_coef is 0.1",
        ),
        (
            "grpo",
            actor("seq-mean-token-mean", use_kl_loss=True, kl_loss_type="k1", kl_loss_coef=0.04),
            "write actor_rollout_ref.actor.kl_loss_type=low_var_kl",
        ),
        ("dr_grpo", actor("seq-mean-token-sum-norm"), "write actor_rollout_ref.actor.loss_scale_factor=1024"),
    ],
)
def test_a_key_of_verls_that_says_something_else_is_refused(name: str, config: SimpleNamespace, expected: str) -> None:
    with pytest.raises(ValueError, match="and the objective") as error:
        called(Objective.preset(name), config)
    assert expected in str(error.value)


# Advantage.


ANSWERS = GOLDEN["answers"]
MASK = (torch.arange(4) < torch.tensor(ANSWERS["length"])[:, None]).double()


def algorithm(**keys: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{
            "use_kl_in_reward": False,
            "kl_penalty": "kl",
            "kl_ctrl": SimpleNamespace(type="fixed", kl_coef=0.001),
            "filter_groups": None,
        }
        | keys
    )


def estimated(name: str, config: SimpleNamespace | None = None, **edits: Any) -> Tensor:
    at_end = torch.zeros(9, 4, dtype=torch.float64)
    at_end = at_end.scatter(
        1, torch.tensor(ANSWERS["length"])[:, None] - 1, torch.tensor(ANSWERS["reward"], dtype=torch.float64)[:, None]
    )
    estimate = advantage_estimator(Objective.preset(name, **edits))
    advantages, returns = estimate(
        at_end, MASK, index=ANSWERS["uid"], config=config or algorithm(), reward_baselines=None
    )
    assert torch.equal(advantages, returns)
    return advantages


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("dr_grpo", {"estimator": "grpo", "norm_adv_by_std_in_grpo": False}), ("opo", {"estimator": "opo"})],
)
def test_verls_own_numbers(ours: str, theirs: dict[str, Any]) -> None:
    expected = next(
        case["advantage"] for case in GOLDEN["estimators"] if case == theirs | {"advantage": case["advantage"]}
    )
    assert torch.allclose(estimated(ours), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-10)


def test_a_flat_group_is_zero_and_padding_too() -> None:
    found = estimated("grpo")
    assert not found[4].any()
    assert not found[6].any()
    assert not found[MASK == 0].any()
    assert found[0, 0] > 0


def test_what_the_filter_of_groups_and_the_kl_of_verl_must_say() -> None:
    with pytest.raises(ValueError, match=r"write algorithm\.filter_groups\.enable=true"):
        estimated("dapo")
    estimated("dapo", algorithm(filter_groups=SimpleNamespace(enable=True)))
    with pytest.raises(
        ValueError, match=r"write algorithm\.use_kl_in_reward=true.*write algorithm\.kl_ctrl\.kl_coef=0\.05"
    ):
        estimated("rloo")
    said = algorithm(use_kl_in_reward=True, kl_penalty="k1", kl_ctrl=SimpleNamespace(type="fixed", kl_coef=0.05))
    expected = next(case["advantage"] for case in GOLDEN["estimators"] if case["estimator"] == "rloo")
    assert torch.allclose(estimated("rloo", said), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match=r"write algorithm\.use_kl_in_reward=false"):
        estimated("dr_grpo", said)


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"advantage.kind": "running_std"}, "remembers earlier batches"),
        ({"advantage.kind": "per_prompt"}, "remembers earlier batches"),
        ({"advantage.kind": "per_reward"}, "algorithm.adv_estimator=gdpo"),
        ({"admission.kind": "informative"}, "leaves groups out of the counts"),
    ],
)
def test_what_verl_cannot_give_is_refused_of_advantage(edits: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match="write") as error:
        advantage_estimator(Objective.preset("bnpo", **edits))
    assert expected in str(error.value)
    with pytest.raises(ValueError, match="verl gave no uid"):
        advantage_estimator(Objective.preset("bnpo"))(torch.zeros(2, 2), torch.ones(2, 2), config=algorithm())
