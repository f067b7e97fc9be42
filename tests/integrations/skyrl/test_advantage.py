"""The advantage of an objective as SkyRL calls it, beside what SkyRL's own estimators gave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.integrations.skyrl.test_policy_loss import algorithm

from groupwise.integrations.skyrl import advantage_estimator
from groupwise.objective import Objective

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "skyrl_0_3.json").read_text(encoding="utf-8"))
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
