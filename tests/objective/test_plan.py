"""The plan of one optimiser step: weights from global counts, micro-batches and filler."""

from __future__ import annotations

import torch
from tests.laws import build, plan_of, prepared, world


def test_filler_repeats_member_0_with_nothing() -> None:
    objective = build()
    assert objective is not None
    plan = plan_of(objective, world())
    part = plan.select(torch.tensor([2, -1]))
    assert len(part) == 2
    assert part.real.tolist() == [True, False]
    assert not part.acted.mask[1].any()
    assert not part.weight[1].any()
    torch.testing.assert_close(part.weight[0], plan.weight[2])
    assert plan.whole
    assert not part.whole


def test_dropped_groups_leave_token_means_and_stay_in_fixed_divisors() -> None:
    # World: seven members in three groups; group 9 (members 3 and 4) is flat and dropped, and the reward of another is
    # missing, so that six were sampled and four train.
    inputs = world()
    batch = prepared(build(), inputs)
    assert [int(batch.sampled.sum()), int((batch.sampled & (batch.prompt != batch.prompt[3])).sum())] == [6, 4]
    trained = int(inputs.mask[batch.sampled & (batch.prompt != batch.prompt[3])].sum())
    for aggregation, total in (
        ({"kind": "token_mean"}, 1.0),
        ({"kind": "member_sum"}, trained / 4),
        ({"kind": "fixed_length", "length": 10}, trained / (6 * 10)),
        ({"kind": "prompt_mean"}, 1.0),
    ):
        objective = build(admission={"kind": "informative"}, aggregation=aggregation)
        assert objective is not None
        plan = plan_of(objective, inputs)
        assert not plan.acted.mask[3:5].any()
        torch.testing.assert_close(float(plan.weight.sum()), total)


def test_counts_and_auxiliary_denominators_are_summed_over_processes() -> None:
    objective = build()
    assert objective is not None
    batch = prepared(objective, world())
    single_process, three_processes = objective.plan(batch), objective.plan(batch, reduce=lambda total: 3 * total)
    torch.testing.assert_close(three_processes.weight * 3, single_process.weight)
    # Counts 3 + 2 + 5, coefficient 0.5.
    assert float(single_process.auxiliary["supervised"]) == 0.05
    torch.testing.assert_close(3 * float(three_processes.auxiliary["supervised"]), 0.05)


def test_a_penalty_in_the_reward_is_none_in_the_loss() -> None:
    for divergence, beta in (({"kind": "k1", "place": "reward", "beta": 0.3}, 0.0), ({"kind": "k2", "beta": 0.3}, 0.3)):
        objective = build(divergence=divergence)
        assert objective is not None
        assert plan_of(objective, world()).beta == beta


def test_the_correction_is_the_old_policy_over_what_sampled() -> None:
    objective = build(correction={"kind": "truncate", "maximum": 1e9})
    assert objective is not None
    inputs = world().rollouts()
    plan = plan_of(objective, world())
    assert plan.correction is not None
    assert inputs.behaviour_log_prob is not None
    expected = (inputs.old_log_prob - inputs.behaviour_log_prob).double().exp()
    torch.testing.assert_close(plan.correction[plan.acted.mask], expected[plan.acted.mask])
    assert (expected[plan.acted.mask] - 1).abs().max() > 1e-3


# A prepared batch: some of its members for one step.


def test_an_update_on_a_part_divides_by_what_the_part_holds() -> None:
    objective = build(aggregation={"kind": "token_mean"})
    assert objective is not None
    batch = prepared(objective, world())
    plan = objective.plan(batch.select(torch.tensor([0, 5])))
    assert float(plan.weight.sum()) == 1.0
    assert float(plan.weight[1, 2]) == 1 / 6
