"""The loss and the advantage of an objective as SkyRL calls them, beside what its own functions gave."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.objective import Objective
from groupwise.objective.preset import method_names
from groupwise_trainers.skyrl import advantage_estimator, loss_refusals, policy_loss

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "skyrl_0_3.json").read_text(encoding="utf-8"))
ROWS: dict[str, Tensor] = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in GOLDEN["batch"].items()}
AGGREGATIONS = {
    "token_mean": "token_mean",
    "sequence_mean": "member_mean",
    "seq_mean_token_sum_norm": "fixed_length",
}
TRUST: dict[str, dict[str, Any]] = {
    "regular": {"trust.kind": "clip"},
    "dual_clip": {"trust.kind": "dual_clip"},
    "gspo": {"trust.kind": "clip", "ratio.kind": "geometric", "ratio.gradient": "token"},
    "cispo": {"trust.kind": "cispo", "trust.maximum": 5.0},
    "sapo": {"trust.kind": "sapo"},
    "dppo": {"trust.kind": "dppo", "trust.threshold": 0.2},
}
FP32 = 1e-6
KEYS = {"eps_clip_low": "trust.low", "eps_clip_high": "trust.high", "clip_ratio_c": "trust.bound"}


def algorithm(reduction: str = "token_mean", **keys: Any) -> SimpleNamespace:
    """SkyRL's algorithm configuration, as far as a policy loss reads it."""
    table: dict[str, Any] = {
        "loss_reduction": reduction,
        "use_kl_loss": False,
        "use_kl_in_reward": False,
        "use_entropy_loss": False,
        "advantage_batch_normalize": False,
        "zero_variance_filter": False,
        "off_policy_correction": SimpleNamespace(tis_ratio_type=None, sequence_mask_metric=None),
        "max_seq_len": 7 if reduction == "seq_mean_token_sum_norm" else None,
    }
    return SimpleNamespace(**table | keys)


def scaled(reduction: str) -> Tensor:
    """Advantages times the weight of their token in the mean over the step, as SkyRL's trainer passes them."""
    mask = ROWS["mask"]
    weight = {
        "token_mean": 1 / mask.sum(),
        "sequence_mean": 1 / (6 * mask.sum(1, keepdim=True).clamp(min=1)),
        "seq_mean_token_sum_norm": torch.tensor(1 / (6 * 7.0)),
    }[reduction]
    return ROWS["advantage"][:, None] * mask * weight


def step(objective: Objective, reduction: str, size: int, order: list[int]) -> tuple[float, Tensor]:
    """The loss of six members in micro-batches, and its gradient by the log-probs."""
    log_prob = ROWS["log_prob"].clone().requires_grad_()
    loss, advantages, config = policy_loss(objective), scaled(reduction), algorithm(reduction)
    total = torch.zeros((), dtype=torch.float64)
    for start in range(0, 6, size):
        rows = torch.tensor(order[start : start + size])
        value, _ = loss(
            log_prob[rows],
            ROWS["old_log_prob"][rows],
            advantages[rows],
            config,
            ROWS["mask"][rows],
            ROWS["behaviour_log_prob"][rows],
        )
        total = total + value
    return float(total.detach()), torch.autograd.grad(total, log_prob)[0]


def objective_of(case: dict[str, Any]) -> Objective:
    keys = case["keys"]
    kind = AGGREGATIONS[case["reduction"]]
    length = {"aggregation.length": 7} if kind == "fixed_length" else {}
    edits = TRUST[keys["loss"]] | {KEYS[key]: value for key, value in keys.items() if key in KEYS}
    return Objective.preset("bnpo", **edits, **{"aggregation.kind": kind}, **length)


@pytest.mark.parametrize("case", GOLDEN["losses"], ids=lambda case: f"{case['keys']} {case['reduction']}")
def test_the_loss_is_skyrls_for_its_own_kinds(case: dict[str, Any]) -> None:
    for size, order in ((6, [0, 1, 2, 3, 4, 5]), (2, [4, 1, 0, 2, 5, 3])):
        value, gradient = step(objective_of(case), case["reduction"], size, order)
        # SkyRL takes its exponentials in fp32. Its dppo states the ratio as value, ours the log-prob with a weight.
        if case["keys"]["loss"] != "dppo":
            assert value == pytest.approx(case["value"], rel=FP32, abs=FP32)
        for row, skyrls in zip(gradient.tolist(), case["gradient"], strict=True):
            assert row == pytest.approx(skyrls, rel=FP32, abs=FP32)


@pytest.mark.slow
@pytest.mark.parametrize("name", method_names())
def test_every_preset_runs_in_micro_batches_or_is_refused(name: str) -> None:
    objective = Objective.preset(name)
    if reasons := list(loss_refusals(objective)):
        with pytest.raises(ValueError, match=r"write |leave "):
            policy_loss(objective)
        assert all("SkyRL" in reason for reason in reasons)
        return
    reduction = next(key for key, kind in AGGREGATIONS.items() if kind == objective.aggregation.kind)
    edits: dict[str, Any] = {"divergence.kind": "none", "admission.kind": "all", "entropy": 0.0}
    if reduction == "seq_mean_token_sum_norm":
        edits["aggregation.length"] = 7
    plain = Objective.preset(name, **edits)
    whole = step(plain, reduction, 6, [0, 1, 2, 3, 4, 5])
    parts = step(plain, reduction, 2, [4, 1, 0, 2, 5, 3])
    assert parts[0] == pytest.approx(whole[0], rel=1e-12, abs=1e-15)
    assert torch.allclose(parts[1], whole[1], rtol=1e-12, atol=1e-15)
    assert whole[1].any()


def test_the_correction_is_ours_and_needs_the_samplers_log_probs() -> None:
    objective = Objective.preset("bnpo+tis")
    corrected = step(objective, "token_mean", 6, [0, 1, 2, 3, 4, 5])
    plain = step(Objective.preset("bnpo"), "token_mean", 6, [0, 1, 2, 3, 4, 5])
    assert abs(corrected[0] - plain[0]) > 1e-6
    with pytest.raises(ValueError, match=r"SkyRL passed none; write generator.sampling_params.logprobs"):
        policy_loss(objective)(ROWS["log_prob"], ROWS["old_log_prob"], scaled("token_mean"), algorithm(), ROWS["mask"])


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"loss_reduction": "sequence_mean"}, "trainer.algorithm.loss_reduction=token_mean"),
        ({"use_kl_loss": True}, "trainer.algorithm.use_kl_loss=false"),
        ({"advantage_batch_normalize": True}, "advantage_batch_normalize=false"),
        (
            {"off_policy_correction": SimpleNamespace(tis_ratio_type="token", sequence_mask_metric=None)},
            "trainer.algorithm.off_policy_correction.tis_ratio_type=null",
        ),
    ],
    ids=str,
)
def test_a_key_that_contradicts_is_named_with_the_override(keys: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=r"and the objective 'bnpo' says") as error:
        policy_loss(Objective.preset("bnpo"))(
            ROWS["log_prob"], ROWS["old_log_prob"], scaled("token_mean"), algorithm(**keys), ROWS["mask"]
        )
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("name", "edits", "expected"),
    [
        ("clip_cov", {}, "looks at a whole optimiser step, and SkyRL gives its policy loss a micro-batch"),
        ("bnpo", {"divergence.kind": "k3", "divergence.beta": 0.1}, "write aggregation.kind = 'member_mean'"),
        ("grpo", {"divergence.kind": "k3_unbiased"}, "write divergence.kind as one of k1, abs, k2, k3"),
        ("bnpo", {"aggregation.kind": "prompt_mean"}, "write one of token_mean, member_mean, fixed_length"),
    ],
    ids=str,
)
def test_what_skyrl_cannot_carry_is_refused_by_name(name: str, edits: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=r"write|leave") as error:
        policy_loss(Objective.preset(name, **edits))
    assert expected in str(error.value)


# The advantage of an objective as SkyRL calls it, beside what SkyRL's own estimators gave.


ANSWERS = GOLDEN["answers"]
LENGTH = torch.tensor(ANSWERS["length"])
MASK = (torch.arange(4) < LENGTH[:, None]).double()
REWARDS = torch.zeros(9, 4, dtype=torch.float64).scatter(
    1, LENGTH[:, None] - 1, torch.tensor(ANSWERS["reward"], dtype=torch.float64)[:, None]
)
KINDS: dict[str, dict[str, Any]] = {
    "grpo True": {"advantage.kind": "z_score"},
    "grpo False": {"advantage.kind": "centred"},
    "rloo": {"advantage.kind": "leave_one_out"},
}


@pytest.mark.parametrize("case", GOLDEN["estimators"], ids=lambda case: str(case)[:60])
def test_the_estimators_of_both_are_the_same(case: dict[str, Any]) -> None:
    name = f"{case['estimator']} {case['grpo_norm_by_std']}" if "grpo_norm_by_std" in case else case["estimator"]
    estimate = advantage_estimator(Objective.preset("bnpo", **KINDS[name]))
    advantage, returns = estimate(REWARDS, MASK, index=ANSWERS["uid"], config=algorithm(), values=None, gamma=1.0)
    assert torch.equal(advantage, returns)
    # SkyRL adds 1e-6 to the standard deviation.
    tolerance = 1e-5 if name == "grpo True" else 1e-9
    assert advantage.tolist() == [pytest.approx(row, rel=tolerance, abs=1e-9) for row in case["advantage"]]


def test_what_an_estimator_cannot_know_is_refused() -> None:
    with pytest.raises(ValueError, match="remembers earlier batches, which SkyRL's checkpoints do not"):
        advantage_estimator(Objective.preset("bnpo", **{"advantage.kind": "running_std"}))
    with pytest.raises(ValueError, match="needs each reward by itself"):
        advantage_estimator(Objective.preset("gdpo"))
    with pytest.raises(ValueError, match="use_kl_in_reward=false"):
        advantage_estimator(Objective.preset("bnpo"))(
            REWARDS, MASK, index=ANSWERS["uid"], config=algorithm(use_kl_in_reward=True)
        )
