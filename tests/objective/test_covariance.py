"""Covariance over the whole update, exact selection on any number of processes, and keyed lots."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.laws import SimulatedProcesses
from tests.objective.small import close, member_ratios

from groupwise.objective.decisions import covariance, keyed_uniform, largest, share_of
from groupwise.statistics import sum_over_one_process


def test_covariance_is_centred_on_all_decisions() -> None:
    # lp - lp_old = 0, ln 4 and ln 2; A = 3, 0, 0: means ln 2 and 1.
    decisions = member_ratios([1.0], [4.0], [2.0], advantage=[3.0, 0.0, 0.0])
    ln2 = 0.6931471805599453
    close(covariance(decisions), [[-ln2 * 2], [-ln2], [0.0]])
    assert not covariance(decisions).requires_grad
    # A = 3, -3, 0: mean 0, so a bad decision counts by its own sign.
    signed = member_ratios([1.0], [4.0], [2.0], advantage=[3.0, -3.0, 0.0])
    close(covariance(signed), [[-ln2 * 3], [-ln2 * 3], [0.0]])


def test_covariance_passes_over_masked_decisions() -> None:
    decisions = member_ratios([1.0, None], [4.0, 2.0], advantage=[3.0, 0.0])
    assert covariance(decisions)[0, 1] == 0.0
    assert covariance(decisions)[1].tolist() == pytest.approx([-0.6931471805599453, 0.0])


@pytest.mark.parametrize(("share", "number"), [(0.2, 1), (0.0002, 1), (0.5, 3), (1.0, 6)])
def test_share_is_rounded_down_and_at_least_one(share: float, number: int) -> None:
    decisions = member_ratios([1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    assert float(share_of(share, decisions)) == number
    assert float(share_of(share, replace(decisions, reduce=lambda total: 10 * total))) == max(1, int(share * 60))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("number", [0, 1, 2, 17, 300, 10_000])
def test_largest_is_topk(dtype: torch.dtype, number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    values = torch.randn(20, 30, dtype=dtype, generator=generator) * 10.0 ** torch.randint(
        -30, 30, (20, 30), generator=generator
    )
    where = torch.rand(20, 30, generator=generator) < 0.7
    expected = torch.zeros_like(where)
    best = torch.where(where, values, float("-inf")).flatten().topk(min(number, int(where.sum()))).indices
    expected.view(-1)[best] = True
    assert largest(values, where, torch.tensor(float(number)), sum_over_one_process).equal(expected)


def test_largest_of_neighbouring_numbers() -> None:
    unit = torch.tensor(1.0)
    above, below = torch.nextafter(unit, unit + 1), torch.nextafter(unit, unit - 1)
    values = torch.stack([below, unit, above, -above])[None]
    assert largest(values, torch.ones(1, 4, dtype=torch.bool), torch.tensor(2.0), sum_over_one_process).tolist() == [
        [False, True, True, False]
    ]


@pytest.mark.parametrize(
    ("number", "expected"), [(1, [0, 0, 0, 0]), (2, [1, 1, 0, 0]), (3, [1, 1, 0, 0]), (4, [1, 1, 1, 1])]
)
def test_ties_that_do_not_all_fit_are_left_out_without_lots(number: int, expected: list[int]) -> None:
    values = torch.tensor([[1.0, 1.0, 0.0, -0.0]])
    assert largest(
        values, torch.ones(1, 4, dtype=torch.bool), torch.tensor(float(number)), sum_over_one_process
    ).int().tolist() == [expected]


@pytest.mark.parametrize(
    ("number", "expected"), [(1, [0, 1, 0, 0]), (2, [1, 1, 0, 0]), (3, [1, 1, 0, 1]), (4, [1, 1, 1, 1])]
)
def test_ties_go_to_the_smallest_lots(number: int, expected: list[int]) -> None:
    values, lots = torch.tensor([[1.0, 1.0, 0.0, -0.0]]), torch.tensor([0.75, 0.25, 0.5, 0.125])
    where = torch.ones(1, 4, dtype=torch.bool)
    assert largest(
        values, where, torch.tensor(float(number)), sum_over_one_process, lots=lambda places: lots[places]
    ).int().tolist() == [expected]


def test_processes_choose_together() -> None:
    values, where = torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), torch.ones(8, 5, dtype=torch.bool)
    together = SimulatedProcesses(2)
    rows = [slice(0, 3), slice(3, 8)]
    parts = together.run(
        lambda rank: largest(values[rows[rank]], where[rows[rank]], torch.tensor(11.0), together.reduce(rank))
    )
    assert torch.cat(parts).equal(largest(values, where, torch.tensor(11.0), sum_over_one_process))


def test_lots_are_uniform_and_independent() -> None:
    lots = keyed_uniform(torch.arange(-500, 500)[:, None], torch.arange(200), key=3)
    assert float(lots.min()) >= 0.0
    assert float(lots.max()) < 1.0
    assert float(lots.mean()) == pytest.approx(0.5, abs=0.003)
    assert float(lots.var()) == pytest.approx(1 / 12, abs=0.001)
    neighbours = torch.stack(
        [
            lots[1:, 1:].flatten(),
            lots[:-1, 1:].flatten(),
            lots[1:, :-1].flatten(),
            keyed_uniform(torch.arange(-499, 500)[:, None], torch.arange(199), 4).flatten(),
        ]
    )
    assert float((torch.corrcoef(neighbours) - torch.eye(4, dtype=torch.float64)).abs().max()) < 0.01
    assert lots.unique().numel() == lots.numel()


def test_lots_go_with_member_decision_and_key() -> None:
    members, places = torch.tensor([[7], [3], [9]]), torch.arange(4)
    lots = keyed_uniform(members, places, key=1)
    assert keyed_uniform(members[[2, 0]], places[[3, 1]], key=1).equal(lots[[2, 0]][:, [3, 1]])
    assert not (keyed_uniform(members, places, key=2) == lots).any()


def test_lots_are_drawn_at_every_step_of_a_long_run() -> None:
    members, places = torch.arange(4)[:, None], torch.arange(8)
    lots = torch.stack([keyed_uniform(members, places, key=key) for key in (0, 6, 7, 12, 10**6, 2**62)])
    assert lots.unique().numel() == lots.numel()
    assert bool(((lots >= 0) & (lots < 1)).all())
