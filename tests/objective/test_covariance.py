"""Covariance over the whole update, exact selection on any number of processes, and keyed lots."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.laws import SimulatedProcesses
from tests.objective.small import close, gradient, member_ratios, recorded

from groupwise.objective import Objective
from groupwise.objective.decisions import Decisions, covariance, keyed_uniform, largest
from groupwise.objective.trust import Clip, ClipCov, KlCov
from groupwise.records import Rollouts, Scored
from groupwise.statistics import finish, sum_over_one_process


def test_covariance_is_centred_on_all_decisions() -> None:
    # lp - lp_old = 0, ln 4 and ln 2; A = 3, 0, 0: means ln 2 and 1.
    decisions = member_ratios([1.0], [4.0], [2.0], advantage=[3.0, 0.0, 0.0])
    ln2 = 0.6931471805599453
    close(covariance(decisions), [[-ln2 * 2], [-ln2], [0.0]])
    assert not covariance(decisions).requires_grad
    # A = 3, -3, 0: mean 0, so a bad decision counts by its own sign.
    signed = member_ratios([1.0], [4.0], [2.0], advantage=[3.0, -3.0, 0.0])
    close(covariance(signed), [[-ln2 * 3], [-ln2 * 3], [0.0]])


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


@pytest.mark.parametrize(
    ("number", "expected"), [(1, [0, 0, 0, 0]), (2, [1, 1, 0, 0]), (3, [1, 1, 0, 0]), (4, [1, 1, 1, 1])]
)
def test_ties_that_do_not_all_fit_are_left_out_without_lots(number: int, expected: list[int]) -> None:
    values = torch.tensor([[1.0, 1.0, 0.0, -0.0]])
    assert largest(
        values, torch.ones(1, 4, dtype=torch.bool), torch.tensor(float(number)), sum_over_one_process
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


# Clip-Cov: a few decisions of high covariance, drawn by keyed lots, lose their gradient.


def test_a_drawn_decision_loses_its_gradient() -> None:
    # A = 1, -1; ln r = +-ln 2 around lp -1, mean 0. Covariances ln 2, -ln 2 | -ln 2, ln 2. Between 0.5 and 1: two; half
    # of four are drawn: both.
    decisions = member_ratios([2.0, 0.5], [2.0, 0.5], advantage=[1.0, -1.0])
    surrogate = ClipCov(low=2.0, high=2.0, share=0.5, lower=0.5, upper=1.0)(decisions.log_ratio, decisions)
    close(surrogate.value, [[0.0, 0.5], [-2.0, 0.0]])
    close(gradient(surrogate.value, decisions), [[0.0, 0.5], [-2.0, 0.0]])
    assert surrogate.alive.tolist() == [[False, True], [True, False]]
    assert finish(surrogate.statistics)["clip_cov/drawn_mean"] == 0.5


def test_what_the_clip_holds_is_not_eligible() -> None:
    # As above with the clip at 0.2: the good 2 and the bad 1/2 are held already, so nothing is drawn and their
    # constants stay.
    decisions = member_ratios([2.0, 0.5], [2.0, 0.5], advantage=[1.0, -1.0])
    region, clip = ClipCov(low=0.2, high=0.2, share=0.5, lower=0.5, upper=1.0), Clip()
    mine, plain = region(decisions.log_ratio, decisions), clip(decisions.log_ratio, decisions)
    close(mine.value, plain.value.tolist())
    assert mine.alive.equal(plain.alive)
    assert finish(mine.statistics)["clip_cov/drawn_mean"] == 0.0


def test_at_least_one_is_drawn_and_the_smallest_lot_it_is() -> None:
    # Every covariance of a member of one advantage apart from the others' lies in the wide interval; share N < 1 draws
    # one.
    decisions = member_ratios([1.1, 1.2, 1.3], [0.9, 0.8, 0.7], advantage=[1.0, -1.0])
    for step in range(5):
        log_prob = recorded(replace(decisions, draw=step), member=torch.tensor([3, 8]))
        alive = ClipCov(share=0.0002, lower=-9.0, upper=9.0)(log_prob.log_ratio, log_prob).alive
        lots = keyed_uniform(torch.tensor([[3], [8]]), torch.arange(3), step)
        assert (~alive).nonzero().tolist() == (lots == lots.min()).nonzero().tolist()


# KL-Cov: no clip, a penalty on the decisions of highest covariance.


LN2 = math.log(2.0)


def test_the_top_decisions_pay_for_their_distance() -> None:
    # Means of A and d are 0: covariances 2 ln 2 on the good decision that grew and the bad one that fell, -2 ln 2 on
    # the others; half of four are held.
    decisions = member_ratios([2.0, 0.5], [2.0, 0.5], advantage=[2.0, -2.0])
    surrogate = KlCov(share=0.5, coefficient=0.5)(decisions.log_ratio, decisions)
    close(surrogate.value, [[4.0 - 0.5 * LN2, 1.0], [-4.0, -1.0 - 0.5 * LN2]])
    close(gradient(surrogate.value, decisions), [[4.0 - 0.5, 1.0], [-4.0, -1.0 + 0.5]])
    assert surrogate.alive.all()
    assert finish(surrogate.statistics) == {"kl_cov/held_mean": 0.5}


def test_where_the_advantage_is_zero_the_penalty_stands_alone() -> None:
    # Mean A is 0: the flat member's covariance is 0, the largest; a bad decision that grew and a good one that fell lie
    # below.
    decisions = member_ratios([4.0], [0.25], [2.0], advantage=[-1.0, 1.0, 0.0])
    surrogate = KlCov(share=0.3)(decisions.log_ratio, decisions)
    close(surrogate.value, [[-4.0], [0.25], [-LN2]])
    close(gradient(surrogate.value, decisions), [[-4.0], [0.25], [-1.0]])


@pytest.mark.parametrize(("share", "held"), [(0.25, 1), (0.5, 2), (0.75, 3), (1.0, 4)])
def test_ties_for_the_last_places_are_drawn(share: float, held: int) -> None:
    # Every group flat: all covariances are 0.
    decisions = recorded(member_ratios([2.0, 0.5], [4.0, 8.0], advantage=0.0), member=torch.tensor([5, 2]))
    surrogate = KlCov(share=share)(decisions.log_ratio, decisions)
    assert finish(surrogate.statistics)["kl_cov/held_mean"] == held / 4
    # S = -|d| where it is held, and the numbers of the draw say where.
    lots = keyed_uniform(torch.tensor([[5], [2]]), torch.arange(2), key=0)
    chosen = lots <= lots.flatten().sort().values[held - 1]
    close(surrogate.value, torch.where(chosen, -decisions.log_ratio.detach().abs(), 0.0).tolist())
    close(gradient(surrogate.value, decisions), torch.where(chosen, -decisions.log_ratio.detach().sign(), 0.0).tolist())


def test_answers_that_repeat_keep_their_penalty() -> None:
    """Entropy collapse, which the method is for: two of eight answers are the same, tie at the top for one place, and
    nobody was held.
    """
    generator = torch.Generator().manual_seed(0)
    old = -6 * torch.rand(8, 400, dtype=torch.float64, generator=generator) ** 4 - 1e-3
    old[2] = old[0]
    objective = Objective.preset("kl_cov")
    rewards = {"right": torch.tensor([0.0, 1, 0, 1, 1, 1, 1, 1])}
    batch = objective.prepare(
        Rollouts(torch.zeros(8, dtype=torch.long), torch.ones(8, 400, dtype=torch.bool), old, rewards), objective.init()
    )
    log_prob = (old + 0.05).clamp(max=-1e-4)
    cotangents = objective.cotangents(Scored(log_prob), objective.plan(batch))
    assert finish(cotangents.loss.statistics)["kl_cov/held_mean"] * 3200 == pytest.approx(1.0)
    # One decision's gradient differs from that of r A, by the penalty's 1 / N.
    plain = -(log_prob - old).exp() * batch.advantage / 3200
    changed = (cotangents.scored.log_prob - plain).abs() > 1e-9
    assert int(changed.sum()) == 1
    assert float((cotangents.scored.log_prob - plain)[changed]) == pytest.approx(1 / 3200, abs=1e-12)


@pytest.mark.parametrize(
    "rows", [[[0, 1, 2, 3], [4, 5, 6, 7]], [[6, 1], [0, 5, 4, 7, 3, 2]], [[], [3, 2, 1, 0, 7, 6, 5, 4]]]
)
def test_processes_draw_the_same_ties(rows: list[list[int]]) -> None:
    all_decisions = recorded(
        member_ratios(*([2.0, 0.5, 4.0] for _ in range(8)), advantage=[1.0, -1.0] * 4), member=torch.arange(8) * 11
    )
    region, together = KlCov(share=0.3), SimulatedProcesses(2)

    def part(rank: int) -> torch.Tensor:
        mine, detached = torch.tensor(rows[rank], dtype=torch.long), all_decisions.detached()
        decisions = Decisions.of(
            detached.mask[mine],
            detached.log_prob[mine],
            detached.acted.old_log_prob[mine],
            detached.advantage[mine],
            member=detached.acted.member[mine],
        )
        return region(decisions.log_ratio, replace(decisions, reduce=together.reduce(rank))).value

    values = torch.cat(together.run(part))[torch.tensor(rows[0] + rows[1]).argsort()]
    close(values, region(all_decisions.log_ratio, all_decisions).value.tolist())
    assert int((values != all_decisions.log_ratio.exp() * all_decisions.advantage).sum()) == 7
