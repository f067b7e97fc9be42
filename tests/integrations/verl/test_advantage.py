from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.integrations.verl import advantage_estimator
from groupwise.objective import Objective

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "verl_0_9.json").read_text(encoding="utf-8"))
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
def test_what_verl_cannot_give_is_refused(edits: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match="write") as error:
        advantage_estimator(Objective.preset("bnpo", **edits))
    assert expected in str(error.value)


def test_groups_need_their_uid() -> None:
    with pytest.raises(ValueError, match="verl gave no uid"):
        advantage_estimator(Objective.preset("bnpo"))(torch.zeros(2, 2), torch.ones(2, 2), config=algorithm())
