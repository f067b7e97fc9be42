"""Decisions: counts, positions and means over what is valid."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from tests.objective.small import close, member_ratios, recorded
from torch import Tensor

from groupwise.objective import Objective
from groupwise.objective.batch import OPTIONAL
from groupwise.objective.decisions import Acted, Decisions, known_gradient, recording, replaying, stop_gradient
from groupwise.objective.loss import check_log_prob
from groupwise.records import Rollouts
from groupwise.statistics import finish


def test_positions_count_valid_decisions() -> None:
    decisions = member_ratios([2.0, None, 4.0], [None, None, None])
    assert decisions.count.tolist() == [[2.0], [1.0]]
    assert decisions.position[0, [0, 2]].tolist() == [0, 1]
    assert decisions.occupied.tolist() == [[True], [False]]
    assert recorded(decisions, packed=True).position.tolist() == [[0, 1, 2]]
    close(decisions.mean(decisions.log_ratio.exp()), [[3.0], [0.0]])
    close(decisions.masked(decisions.log_ratio.exp(), fill=-1.0), [[2.0, -1.0, 4.0], [-1.0] * 3])


def test_a_log_ratio_is_held_where_its_exponential_overflows_and_keeps_its_gradient() -> None:
    log_prob = torch.tensor([[-1.0, -500.0, -3.0, float("-inf")]], requires_grad=True)
    old = torch.tensor([[-400.0, -2.0, -2.5, -1.0]])
    mask = torch.ones(1, 4, dtype=torch.bool)
    log_ratio = Decisions.of(mask, log_prob, old, torch.ones(1, 4)).log_ratio
    log_ratio.backward(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    limit = log_ratio[0, 0].item()
    assert 39 < limit < 41
    assert log_ratio.tolist() == [[limit, -limit, -0.5, -limit]]
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == [[1.0, 2.0, 3.0, 4.0]]
    wide = Decisions.of(mask, log_prob.double(), old.double(), torch.ones(1, 4).double()).log_ratio[0].tolist()
    assert wide[0] == -wide[3]
    assert 300 < wide[0] < 354
    assert wide[1:3] == [-wide[0], -0.5]


def test_good_and_bad_by_the_members_advantage_or_by_the_decisions() -> None:
    decisions = member_ratios([2.0, 1.0], [1.0, 1.0], [1.0, 1.0], advantage=[1.0, -1.0, 0.0])
    assert decisions.good.tolist() == [[True] * 2, [False] * 2, [False] * 2]
    by_member = replace(decisions, member_advantage=decisions.advantage[:, :1])
    assert by_member.good.tolist() == [[True], [False], [False]]
    assert by_member.bad.tolist() == [[False], [True], [False]]


def test_statistics_count_valid_decisions_alone() -> None:
    decisions = member_ratios([2.0, None, 4.0], [6.0, None, None])
    ratio = decisions.log_ratio.exp()
    assert finish({"mean": decisions.average(ratio), "share": decisions.share(lambda: ratio > 3)}) == pytest.approx(
        {"mean": 4.0, "share": 2 / 3}
    )


# The record of what was acted: every field goes with its member, filler counts nothing, masked places are harmless.


MASK = torch.tensor([[True, True, False], [True, False, True], [False, False, False]])


def acted() -> Acted:
    """Three members whose every field holds other numbers, NaN where nothing counts."""
    numbers = {
        name: torch.where(MASK, -torch.arange(1.0, 10.0).view(3, 3) / (place + 1), torch.nan)
        for place, name in enumerate(sorted({"old_log_prob", *OPTIONAL}))
    }
    old = numbers.pop("old_log_prob")
    return Acted(MASK, old, **numbers, member=torch.tensor([7, 5, 3]), density=True)


def tensors(record: Acted) -> dict[str, Tensor]:
    return {f.name: value for f in fields(record) if isinstance(value := getattr(record, f.name), Tensor)}


def test_every_field_goes_with_its_member_and_filler_counts_nothing() -> None:
    every_field, rows = acted(), torch.tensor([1, -1, 0])
    selected = every_field.select(rows)
    assert len(selected) == 3
    for name, value in tensors(every_field).items():
        chosen = getattr(selected, name)
        torch.testing.assert_close(chosen[[0, 2]], value[[1, 0]], equal_nan=True)
        # Filler repeats member 0 but for its mask.
        if name != "mask":
            torch.testing.assert_close(chosen[1], value[0], equal_nan=True)
    assert not selected.mask[1].any()
    assert (selected.density, selected.packed) == (True, False)


@pytest.mark.parametrize("ids", [None, torch.tensor([40, 50])])
def test_what_rollouts_recorded_is_taken_whole(ids: Tensor | None) -> None:
    mask, old = torch.ones(2, 2, dtype=torch.bool), torch.full((2, 2), -1.0)
    beside = {name: old.abs() * (place + 2) for place, name in enumerate(sorted(OPTIONAL))}
    rollouts = Rollouts(torch.tensor([0, 0]), mask, old, {"right": [1.0, 0.0]}, **beside, member=ids, density=True)
    objective = Objective.preset("grpo")
    record = objective.prepare(rollouts, objective.init()).acted
    for name in ("mask", "old_log_prob", *OPTIONAL):
        assert torch.equal(getattr(record, name), getattr(rollouts, name)), name
    assert record.member is not None
    assert record.member.tolist() == ([0, 1] if ids is None else [40, 50])
    assert record.density
    assert record.packed
    holes = replace(rollouts, mask=torch.tensor([[False, True], [True, True]]))
    assert not objective.prepare(holes, objective.init()).acted.packed


# What a live log-prob may be; `tests/objective/test_objective.py` has the errors as `loss` and `cotangents` give
# them.


def test_masked_log_probs_may_be_nan_and_counted_ones_raise_no_error() -> None:
    objective = Objective.preset("dapo")
    mask = torch.tensor([[True, False], [True, True]])
    batch = objective.prepare(
        Rollouts(torch.tensor([0, 0]), mask, torch.full((2, 2), -1.0), {"r": [1.0, 0.0]}), objective.init()
    )
    masked = torch.tensor([[-1.0, torch.nan], [-1.0, -2.0]])
    check_log_prob(masked, objective.plan(batch))
    check_log_prob(masked[:0], objective.plan(batch))
    broken = torch.tensor([[torch.inf, torch.nan], [-1.0, -torch.inf]])
    check_log_prob(broken, objective.plan(batch, not_finite="counted"))
    with pytest.raises(ValueError, match=r"log_prob\[0, 0\] is inf where the mask is true \(2 such places"):
        check_log_prob(broken, objective.plan(batch))
    # Counting what is no number does not let probabilities pass.
    with pytest.raises(ValueError, match=r"log_prob\[1, 0\] is 0.5, above zero"):
        check_log_prob(torch.tensor([[torch.nan, -1.0], [0.5, -1.0]]), objective.plan(batch, not_finite="counted"))


# Stopping a gradient, and holding the stopped values still for finite differences.


def test_stopped_value_has_no_gradient() -> None:
    x = torch.tensor(3.0, requires_grad=True)
    (x * stop_gradient(x)).backward()
    assert x.grad is not None
    assert float(x.grad) == 3.0


def test_replay_keeps_the_recorded_values() -> None:
    with recording() as stopped:
        stop_gradient(torch.tensor(3.0))
        stop_gradient(torch.tensor(4.0))
    with replaying(stopped):
        assert float(stop_gradient(torch.tensor(30.0))) == 3.0
        assert float(stop_gradient(torch.tensor(40.0))) == 4.0
    assert float(stop_gradient(torch.tensor(30.0))) == 30.0


# A value with the gradient it is said to have.


def test_value_and_gradient_are_those_given() -> None:
    source = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    value, slope = torch.tensor([5.0, 6.0, 7.0]).double(), torch.tensor([0.0, -1.0, 2.0]).double()
    value_with_gradient = known_gradient(source, value, slope)
    assert value_with_gradient.tolist() == [5.0, 6.0, 7.0]
    (value_with_gradient * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert source.grad is not None
    assert source.grad.tolist() == [0.0, -10.0, 200.0]
