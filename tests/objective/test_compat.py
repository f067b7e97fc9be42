"""`compat = "verl_rl"` gives the recorded numbers of the original functions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.objective import Objective, Plan
from groupwise.records import Scored
from groupwise.statistics import finish

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "golden_verl_rl.json").read_text())
CASES = [(setting, number) for setting in GOLDEN["settings"] for number in range(len(GOLDEN["cases"]))]


def original(**settings: Any) -> Objective:
    """The original's switches as an objective: clip 0.2, dual clip 3, token mean where the source fixes
    nothing else.
    """
    keys: dict[str, Any] = {"compat": "verl_rl", "trust.kind": "dual_clip", "trust.bound": 3.0}
    if settings.get("use_ema_smoothing"):
        keys |= {"smoothing.kind": "ema", "smoothing.beta": settings.get("ema_beta", 0.9)}
    if settings.get("use_gradient_adaptive_weighting"):
        keys |= {"credit.gradient_adaptive.temperature": settings.get("gradient_weighting_temperature", 1.0)}
    if settings.get("use_amic"):
        keys |= {
            "ratio.kind": "arithmetic",
            "ratio.gradient": "token" if settings.get("use_gradient_adaptive_weighting") else "sequence",
        }
    if settings.get("use_temporal_decay"):
        keys |= {
            "credit.temporal_decay.gamma": 0.95,
            "credit.temporal_decay.raw": not settings.get("temporal_decay_normalize", True),
        }
    if settings.get("use_ptrw"):
        keys |= {"trust.kind": "gaussian", "trust.sigma": settings.get("ptrw_sigma", 0.2)}
        del keys["trust.bound"]
    if settings.get("use_asymmetric_clipping"):
        keys |= {"trust.kind": "asymmetric_clip", "trust.eps_pos": 0.3, "trust.eps_neg": 0.1}
        del keys["trust.bound"]
    return Objective.preset("bnpo", **keys)


def plan_of(objective: Objective, case: dict[str, Any]) -> Plan:
    """The plan of a recorded case, whose advantages are one a token."""
    from groupwise.objective.batch import Acted, Batch

    mask = torch.tensor(case["mask"], dtype=torch.bool)
    members = mask.shape[0]
    acted = Acted(mask, torch.tensor(case["old_log_prob"], dtype=torch.float64), member=torch.arange(members))
    batch = Batch.of(acted, torch.tensor(case["advantage"], dtype=torch.float64), objective.init())
    return objective.plan(batch)


@pytest.mark.parametrize(("setting", "number"), CASES)
def test_recorded_value_and_gradient(setting: str, number: int) -> None:
    case = GOLDEN["cases"][number]
    objective = original(**GOLDEN["settings"][setting])
    log_prob = torch.tensor(case["log_prob"], dtype=torch.float64, requires_grad=True)
    loss = objective.loss(Scored(log_prob), plan_of(objective, case)).total
    loss.backward()
    expected = case["expected"][setting]
    assert log_prob.grad is not None
    assert float(loss.detach()) == pytest.approx(expected["loss"], abs=1e-9)
    torch.testing.assert_close(log_prob.grad, torch.tensor(expected["grad"], dtype=torch.float64), rtol=0, atol=1e-9)


def test_an_advantage_of_mean_zero_counts_as_negative() -> None:
    # Ratios 1.2, advantages 1 and -1: their mean 0 takes the narrow width, so the mean ratio is held at 1.1 and carries
    # nothing.
    objective = original(use_asymmetric_clipping=True)
    case = {"mask": [[1, 1]], "old_log_prob": [[-1.0, -1.0]], "advantage": [[1.0, -1.0]]}
    log_prob = torch.full((1, 2), -1.0 + math.log(1.2), dtype=torch.float64, requires_grad=True)
    loss = objective.loss(Scored(log_prob), plan_of(objective, case))
    (gradient,) = torch.autograd.grad(loss.total, log_prob)
    assert gradient.tolist() == [[0.0, 0.0]]
    metrics = finish(loss.statistics)
    assert (metrics["zero_gradient_fraction/positive"], metrics["zero_gradient_fraction/negative"]) == (1.0, 1.0)
    inside_log_prob = torch.full((1, 2), -1.0 + math.log(1.05), dtype=torch.float64)
    assert (
        finish(objective.loss(Scored(inside_log_prob), plan_of(objective, case)).statistics)[
            "zero_gradient_fraction/positive"
        ]
        == 0.0
    )
