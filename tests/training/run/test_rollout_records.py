from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, final

import pytest
from jaxtyping import Float
from tests.training.step.test_update import gathered, step_of
from tests.training.toy import ToyDomain, recipe
from torch import Tensor

from groupwise.domain.protocol import Samples
from groupwise.objective.decisions import Decisions
from groupwise.objective.slot import CreditSlot
from groupwise.training.job import Recipe
from groupwise.training.optimiser_config import OptimiserConfig
from groupwise.training.run.rollout_records import rollout_records
from groupwise.training.step.step import update_policy

TOKENS = ("token_log_prob", "token_log_ratio", "token_credit")


@final
class ByEntropy(CreditSlot):
    kind: ClassVar[str] = "by_entropy"
    reads: ClassVar[frozenset[str]] = frozenset({"entropy"})

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        assert decisions.entropy is not None
        weight = decisions.entropy.detach() * decisions.mask
        return weight * (decisions.count / weight.sum(1, keepdim=True))


class Speaking(ToyDomain):
    """A toy whose members have tokens: its actions, and one that was no decision after them."""

    def describe(self, samples: Samples, rows: Tensor) -> list[dict[str, Any]]:
        actions = samples.payload["action"][rows].tolist()
        return [
            {**record, "tokens": list(map(str, member_actions))}
            for record, member_actions in zip(super().describe(samples, rows), actions, strict=True)
        ]


def recorded(chosen: Recipe, rate: float = 0.1) -> tuple[list[dict[str, Any]], Any, Any]:
    _, state, collected = gathered(chosen)
    chosen = replace(chosen, optimiser=OptimiserConfig.model_validate({"learning_rate": rate}))
    toy = Speaking()
    toy.module = state.learner.module
    updates = update_policy(step_of(toy, chosen, state), collected)
    return rollout_records(toy, chosen.objective, collected, updates, 16), collected, updates


def test_a_domain_without_tokens_has_no_numbers_of_them() -> None:
    chosen = recipe(method="dapo")
    toy, state, collected = gathered(chosen)
    updates = update_policy(step_of(toy, chosen, state), collected)
    records = rollout_records(toy, chosen.objective, collected, updates, 5)
    assert len(records) == 5
    assert not any(name in record for record in records for name in TOKENS)
    assert [record["num_decisions"] for record in records] == collected.samples.mask.sum(1)[:5].tolist()


def test_on_policy_and_uniform_a_token_has_its_log_prob_and_nothing_trivial() -> None:
    records, collected, _ = recorded(recipe(method="dapo"))
    for row, record in enumerate(records):
        assert "token_log_ratio" not in record
        assert "token_credit" not in record
        mask = collected.samples.mask[row].tolist()
        assert [value is not None for value in record["token_log_prob"]] == mask
        assert record["token_log_prob"][0] == pytest.approx(float(collected.samples.old_log_prob[row, 0]), rel=5e-3)


def test_a_second_update_shows_how_far_each_token_moved() -> None:
    records, collected, updates = recorded(recipe(method="dapo", updates_per_batch=2))
    moved = [row for row, record in enumerate(records) if record["advantage"]]
    assert moved
    for row in moved:
        valid = [value for value in records[row]["token_log_ratio"] if value is not None]
        assert records[row]["log_ratio"] == pytest.approx(sum(valid) / len(valid), rel=0.02)
        assert len(valid) == int(collected.samples.mask[row].sum())
    assert all("token_log_ratio" not in record for record in records if not record["advantage"])
    assert float(updates.log_ratio.abs().max()) > 0.01


def test_credit_falls_along_a_member_by_hand() -> None:
    chosen = recipe(method="grpo", objective={"credit.temporal_decay.gamma": 0.5, "divergence.kind": "none"})
    records, _, _ = recorded(chosen)
    long = next(record for record in records if record["num_decisions"] == 3 and record["advantage"])
    # 1, 1/2, 1/4, renormalised to mean one: 12/7, 6/7, 3/7.
    assert long["token_credit"] == pytest.approx([long["advantage"] * share / 7 for share in (12, 6, 3)], rel=5e-3)


def test_credit_by_the_entropy_of_a_class_of_ones_own_is_left_out() -> None:
    path = f"{__name__}:ByEntropy"
    chosen = recipe(method="grpo", objective={"credit.callable.path": path, "divergence.kind": "none"})
    records, _, _ = recorded(chosen)
    assert records
    assert not any("token_credit" in record for record in records)
