"""KL-Cov: no clip, a penalty on the decisions of highest covariance."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.laws import SimulatedProcesses
from tests.objective.small import close, gradient, member_ratios, recorded

from groupwise.objective import Objective
from groupwise.objective.decisions import Decisions, keyed_uniform
from groupwise.objective.trust import KlCov
from groupwise.records import Rollouts, Scored
from groupwise.statistics import finish

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


def test_on_policy_the_penalty_has_no_gradient() -> None:
    decisions = member_ratios([1.0], [1.0], advantage=[1.0, -1.0])
    close(gradient(KlCov(share=1.0)(decisions.log_ratio, decisions).value, decisions), [[1.0], [-1.0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exactly_as_many_as_asked_for(dtype: torch.dtype) -> None:
    decisions = member_ratios(
        *([math.exp(math.sin(7 * b + t)) for t in range(25)] for b in range(4)),
        advantage=[1.0, -1.0, 0.5, -2.0],
        dtype=dtype,
    )
    penalised = finish(KlCov(share=0.17)(decisions.log_ratio, decisions).statistics)["kl_cov/held_mean"]
    assert penalised == 0.17


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


def test_every_tied_decision_is_drawn_as_often() -> None:
    decisions = recorded(member_ratios([2.0, 0.5], [4.0, 8.0], advantage=0.0), member=torch.tensor([5, 2]))
    times = torch.zeros(2, 2)
    for step in range(300):
        times += KlCov(share=0.25)(decisions.log_ratio.detach(), replace(decisions, draw=step)).value != 0
    # Four places of 75 each; the deviation of a count is 7.5.
    assert float((times - 75).abs().max()) < 30


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
