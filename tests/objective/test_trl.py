"""The recorded numbers of TRL 1.16's own loss (tests/oracles/record_trl.py): every loss type x level x KL x clip x
accumulation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.config import validate
from groupwise.objective import Objective
from groupwise.objective.batch import Acted, Batch
from groupwise.records import Scored

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "trl_1_16.json").read_text(encoding="utf-8"))
GIVEN: dict[str, Tensor] = {name: torch.tensor(rows, dtype=torch.float64) for name, rows in GOLDEN["batch"].items()}
AGGREGATIONS: dict[str, dict[str, Any]] = {
    "grpo": {"kind": "member_mean"},
    "bnpo": {"kind": "token_mean"},
    "dr_grpo": {"kind": "fixed_length", "length": GOLDEN["max_completion_length"]},
    "dapo": {"kind": "token_mean"},
    "cispo": {"kind": "token_mean"},
    "sapo": {"kind": "member_mean"},
    "luspo": {"kind": "member_sum"},
    "vespo": {"kind": "token_mean"},
}


def trust(case: dict[str, Any]) -> dict[str, Any]:
    """TRL's settings as a trust region, its defaults where it has them."""
    if case["loss_type"] == "cispo":
        return {"kind": "cispo", "maximum": case["epsilon_high"]}
    if case["loss_type"] == "sapo":
        return {"kind": "sapo"} | {
            f"tau_{sign}": case[key] for sign in ("pos", "neg") if (key := f"sapo_temperature_{sign}") in case
        }
    if case["loss_type"] == "vespo":
        return {"kind": "vespo"} | {
            name: case[f"vespo_{name}"]
            for name in ("k_pos", "lambda_pos", "k_neg", "lambda_neg")
            if f"vespo_{name}" in case
        }
    clip = {"low": case["epsilon"], "high": case.get("epsilon_high", case["epsilon"])}
    return {"kind": "dual_clip", "bound": case["delta"], **clip} if "delta" in case else {"kind": "clip", **clip}


def ours(case: dict[str, Any]) -> Objective:
    """The same loss in our slots."""
    level = {"token": {"kind": "token"}, "sequence": {"kind": "geometric"}}[case["importance_sampling_level"]]
    kl = "k3_unbiased" if case.get("use_bias_correction_kl") else "k3"
    table = {
        "ratio": {"kind": "product"} if case["loss_type"] == "vespo" else level,
        "trust": trust(case),
        "aggregation": AGGREGATIONS[case["loss_type"]],
        "divergence": {"kind": kl, "beta": case["beta"]} if case["beta"] else {"kind": "none"},
    }
    return validate(Objective, table, source="trl")


def loss_of(objective: Objective, rows: Tensor) -> tuple[float, Tensor]:
    """The loss of one update of these members, and its gradient by all log-probs."""
    acted = Acted(
        GIVEN["mask"][rows].bool(),
        GIVEN["old_log_prob"][rows],
        member=rows,
        reference_log_prob=GIVEN["reference_log_prob"][rows],
    )
    batch = Batch.of(acted, GIVEN["advantage"][rows][:, None], objective.init())
    log_prob = GIVEN["log_prob"].clone().requires_grad_()
    total = objective.loss(Scored(log_prob[rows]), objective.plan(batch)).total
    return float(total.detach()), torch.autograd.grad(total, log_prob)[0]


def agree(found: tuple[float, Tensor], case: dict[str, Any]) -> bool:
    expected = torch.tensor(case["gradient"], dtype=torch.float64)
    close = (found[1] - expected).abs() <= 1e-10 * expected.abs().clamp(min=1)
    return abs(found[0] - case["loss"]) <= 1e-10 * max(1.0, abs(case["loss"])) and bool(close.all())


def differs(case: dict[str, Any]) -> str | None:
    """Where TRL's number is another, and why."""
    if case["loss_type"] == "bnpo" and case["accumulation"] > 1:
        return "TRL divides by the tokens of a micro-batch"
    if case.get("use_bias_correction_kl") and case["importance_sampling_level"] == "sequence":
        return "TRL corrects the KL of a token by its answer's mean ratio"
    return None


def identity(case: dict[str, Any]) -> str:
    return " ".join(
        f"{value}" if isinstance(value, str) else f"{key}={value}"
        for key, value in case.items()
        if key not in ("loss", "gradient")
    )


@pytest.mark.parametrize("case", [case for case in GOLDEN["cases"] if differs(case) is None], ids=identity)
def test_recorded_value_and_gradient(case: dict[str, Any]) -> None:
    assert agree(loss_of(ours(case), torch.arange(6)), case)


@pytest.mark.parametrize(
    "case",
    [case for case in GOLDEN["cases"] if case["loss_type"] == "bnpo" and case["accumulation"] == 2],
    ids=identity,
)
def test_bnpo_of_trl_is_the_mean_of_ours_over_micro_batches(case: dict[str, Any]) -> None:
    parts = [loss_of(ours(case), rows) for rows in torch.arange(6).chunk(2)]
    assert agree((sum(part[0] for part in parts) / 2, (parts[0][1] + parts[1][1]) / 2), case)
    assert not agree(loss_of(ours(case), torch.arange(6)), case)


@pytest.mark.parametrize(
    "case", [case for case in GOLDEN["cases"] if "TRL corrects" in str(differs(case))], ids=identity
)
def test_a_kl_corrected_by_the_answers_ratio_is_told_apart(case: dict[str, Any]) -> None:
    plain = next(
        each for each in GOLDEN["cases"] if identity(each) == identity({**case, "use_bias_correction_kl": False})
    )
    # Without the correction the two agree, so the estimator is the whole difference.
    assert agree(loss_of(ours(plain), torch.arange(6)), plain)
    assert not agree(loss_of(ours(case), torch.arange(6)), case)


def test_every_loss_type_is_recorded_with_every_setting() -> None:
    assert {case["loss_type"] for case in GOLDEN["cases"]} == set(AGGREGATIONS)
    assert len(GOLDEN["cases"]) == 150
    assert len({identity(case) for case in GOLDEN["cases"]}) == 150
    losses = {round(case["loss"], 10) for case in GOLDEN["cases"]}
    assert len(losses) > 60


@pytest.mark.parametrize("name", ["grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo", "vespo"])
def test_a_preset_has_the_slots_that_give_trls_numbers(name: str) -> None:
    """The preset of that name with TRL's clip and length in it."""
    sequence = name == "luspo"
    case = next(
        case
        for case in GOLDEN["cases"]
        if case["loss_type"] == name
        and case["importance_sampling_level"] == ("sequence" if sequence else "token")
        and bool(case["beta"]) == (name == "grpo")
        and not case.get("use_bias_correction_kl")
        and case["accumulation"] == 1
    )
    keys: dict[str, Any] = {}
    if name == "dr_grpo":
        keys["aggregation.length"] = GOLDEN["max_completion_length"]
    if name == "luspo":
        keys |= {"trust.low": case["epsilon"], "trust.high": case["epsilon"]}
    assert agree(loss_of(Objective.preset(name, **keys), torch.arange(6)), case)
