"""Micro-batches of other trainers: what they record need not be finite, and never becomes a loss that is NaN."""

import itertools

import pytest
import torch
from tests.marks import slow_but

from groupwise.objective import Objective
from groupwise.objective.preset import method_names
from groupwise.statistics import finish
from groupwise_trainers.foreign import group_advantage
from groupwise_trainers.micro_batch import step_share

MASK = torch.ones(4, 3)
ADVANTAGES = torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None].expand(4, 3)
NAMES = [name for name in method_names() if Objective.preset(name).requires == {"log_prob"}]


CASES = list(itertools.product([float("-inf"), float("inf"), float("nan")], [True, False]))


@pytest.mark.parametrize(("value", "live_too"), slow_but(CASES[:1], CASES))
def test_a_recorded_log_prob_that_is_not_finite_is_left_out_and_counted(value: float, live_too: bool) -> None:
    """On-policy the recorded log-prob is the live one, so that what the policy finds impossible is -inf in both."""
    place = torch.zeros(4, 3, dtype=torch.bool)
    place[0, 1] = True
    assert len(NAMES) > 30
    for name in [*NAMES, "grpo+tis", "gspo+seq_mis", "dapo+geo_rs"]:
        objective = Objective.preset(name)
        loss = step_share(objective)
        old = torch.full((4, 3), -1.0)
        sampler, reference = torch.where(place, value, old + 0.01), old - 0.2
        live = (old - 0.1).requires_grad_()
        broken = torch.where(place, value, live) if live_too else live
        told = loss(
            broken,
            torch.where(place, value, old),
            ADVANTAGES,
            MASK,
            behaviour_log_prob=sampler,
            reference_log_prob=reference,
        )
        (gradient,) = torch.autograd.grad(told.total, live)
        assert bool(told.total.isfinite()), name
        assert bool(gradient.isfinite().all()), name
        assert gradient[0, 1] == 0, name
        assert finish(told.statistics)["log_prob/not_finite"] == 1, name
        # As a policy that has not moved there, without the decision's own weight.
        still = torch.where(place, 0.0, old)
        expected = loss(
            torch.where(place, 0.0, live),
            still,
            ADVANTAGES,
            MASK,
            weight=1 - place.float(),
            behaviour_log_prob=torch.where(place, still, sampler),
            reference_log_prob=torch.where(place, still, reference),
        )
        torch.testing.assert_close(told.total, expected.total, rtol=1e-5, atol=1e-7, msg=name)
        torch.testing.assert_close(
            gradient, torch.autograd.grad(expected.total, live)[0], rtol=1e-5, atol=1e-7, msg=name
        )


# The advantages of whole groups, from the token rewards that another trainer gives.


def test_a_reward_on_a_token_that_a_tool_wrote_counts() -> None:
    rewards = torch.zeros(4, 3)
    rewards[:, 2] = torch.tensor([1.0, 0.0, 2.0, 1.0])
    written = torch.ones(4, 3)
    written[0, 2] = 0  # A tool's reply, which the limit of tokens left at the end.
    written[3] = 0  # An answer that does not train at all is still one of its group.
    advantage = group_advantage(Objective.preset("dr_grpo"))(rewards, written, ["a", "a", "a", "a"])
    torch.testing.assert_close(advantage, torch.tensor([[0.0], [-1.0], [1.0], [0.0]]) * written)
