"""Laws 4 and 5 where single batches are too few: any reward, any mask, any ratio, over every kind by discovery."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import laws
from tests.objective.small import advantages
from tests.objective.test_laws import ADVANTAGES

from groupwise.config import validate
from groupwise.objective import Objective
from groupwise.objective.batch import Acted
from groupwise.objective.decisions import Decisions

TABLES = laws.slot_tables("advantage", switches=True)
COMPARING = [
    table
    for table in TABLES
    if ADVANTAGES.get(f"{table['kind']} {table.get('baseline')}", ADVANTAGES[table["kind"]]).flat
]
NUMBERS = st.floats(min_value=0.0, max_value=1e9, allow_subnormal=True)
LOG_RATIOS = st.floats(min_value=-80.0, max_value=80.0)


@pytest.mark.parametrize("table", COMPARING, ids=str)
@given(reward=NUMBERS, size=st.integers(2, 9))
@settings(max_examples=12)
def test_a_flat_group_is_exactly_nothing_at_any_reward(table: laws.Table, reward: float, size: int) -> None:
    advantage = validate(Objective, {"advantage": table}, source="law").advantage
    assert advantages(advantage, [reward] * size, [0.0, 1.0])[:size] == [0.0] * size


@pytest.mark.parametrize("table", COMPARING, ids=str)
@given(rewards=st.lists(NUMBERS, min_size=2, max_size=6))
@settings(max_examples=12)
def test_no_reward_makes_an_advantage_that_is_not_a_number(table: laws.Table, rewards: list[float]) -> None:
    advantage = validate(Objective, {"advantage": table}, source="law").advantage
    assert all(math.isfinite(value) for value in advantages(advantage, rewards, [0.0, 1.0]))


@pytest.mark.parametrize("table", laws.slot_tables("credit", switches=True)[1:], ids=str)
@given(mask=st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=3), seed=st.integers(0, 99))
@settings(max_examples=12)
def test_a_credit_has_mean_one_over_any_mask_and_masks_are_zero_or_one(
    table: laws.Table, mask: list[list[bool]], seed: int
) -> None:
    objective = laws.build(credit=table, ratio={"kind": "token"})
    assert objective is not None
    where = torch.tensor(mask)
    draws = torch.rand(4, *where.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    log_prob, norm, step, entropy = (torch.where(where, draw, 0.0) for draw in draws)
    acted = Acted(where, -20 * log_prob, step_size=step + where * 0.1)
    credit = objective.credit(
        Decisions(
            acted,
            -20 * log_prob,
            log_prob,
            score_norm=norm,
            entropy=entropy,
            member_advantage=entropy.sum(1, keepdim=True) - 1,
        )
    )
    assert (credit >= 0).all()
    if not objective.credit.spreads:
        assert ((credit == 0) | ((credit == 1) & where)).all()
    elif not objective.credit.raw:
        laws.same(credit.sum(1), where.double().sum(1), "mean one")
        assert ((credit == 1) | ~where)[where.sum(1) == 1].all()


@pytest.mark.parametrize("table", laws.slot_tables("trust", switches=True), ids=str)
@given(
    log_ratio=st.lists(LOG_RATIOS, min_size=4, max_size=4),
    advantage=st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4),
)
@settings(max_examples=12)
def test_a_region_is_finite_and_never_pushes_the_wrong_way(
    table: laws.Table, log_ratio: list[float], advantage: list[float]
) -> None:
    region = validate(Objective, {"trust": table}, source="law").trust
    gap, wide = torch.tensor([log_ratio], dtype=torch.float64), torch.tensor([advantage], dtype=torch.float64)
    if getattr(region, "whole_member", False):
        wide = wide[:, :1].expand_as(wide)
    old = torch.full_like(gap, -90.0)
    live = (old + gap).requires_grad_()
    given_decisions = Decisions.of(
        torch.ones_like(gap, dtype=torch.bool), live, old, wide, behaviour_log_prob=old, member=torch.arange(1)
    )
    decisions = dataclasses.replace(given_decisions, old_divergence=gap.square() / 2)
    surrogate = region(decisions.log_ratio, decisions)
    push = (
        torch.autograd.grad(surrogate.value.sum(), live, allow_unused=True)[0]
        if surrogate.value.requires_grad
        else torch.zeros_like(live)
    )
    assert surrogate.value.isfinite().all()
    assert push is not None
    assert push.isfinite().all()
    # KL-Cov's penalty pulls its top decisions back whatever their advantage.
    if table["kind"] != "kl_cov":
        assert (push * wide >= 0).all()
