"""The public interface against its hardest users, each through a real model with gradients down to its parameters, in
fp64.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from groupwise.objective import Objective
from groupwise.records import Rollouts, Scored

MEMBERS, DECISIONS, SIZE, SIGMA = 8, 6, 5, 0.7


class Transitions(nn.Module):
    """A Gaussian policy over several transitions: the mean of each is a small network of the state before it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(SIZE, 7), nn.Tanh(), nn.Linear(7, SIZE)).double()

    def mean(self, states: Tensor) -> Tensor:
        return self.net(states)


def log_prob(mean: Tensor, action: Tensor) -> Tensor:
    return -((action - mean) ** 2).mean(-1) / (2 * SIGMA**2)


@pytest.fixture
def problem() -> tuple[Transitions, Tensor, Tensor, Rollouts, Tensor]:
    model = Transitions()
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(MEMBERS, DECISIONS, SIZE, generator=generator, dtype=torch.float64)
    reference = torch.randn(MEMBERS, DECISIONS, SIZE, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        actions = model.mean(states) + SIGMA * torch.randn(states.shape, generator=generator, dtype=torch.float64)
        old = log_prob(model.mean(states), actions)
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    mask = torch.rand(MEMBERS, DECISIONS, generator=generator) < 0.8
    rollouts = Rollouts(
        group=torch.arange(MEMBERS) // 4,
        mask=mask,
        old_log_prob=old,
        rewards={"quality": torch.rand(MEMBERS, generator=generator)},
        reference_log_prob=log_prob(reference, actions),
        density=True,
        auxiliary_count={"supervised": mask.sum(1).double()},
    )
    return model, states, actions, rollouts, reference


def scored(model: Transitions, states: Tensor, actions: Tensor, reference: Tensor, mask: Tensor) -> Scored:
    mean = model.mean(states)
    lp = log_prob(mean, actions)
    return Scored(
        lp,
        entropy=lp * 0 + mean.square().mean(-1),
        exact_divergence=(mean - reference).square().mean(-1) / (2 * SIGMA**2),
        auxiliary={"supervised": ((mean - actions).abs().mean(-1) * mask).sum(1)},
    )


def gradients(model: nn.Module) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


USERS = {
    "a covariance method over the whole batch": {
        "trust.kind": "clip_cov",
        "trust.share": 0.2,
        "trust.lower": -0.5,
        "trust.upper": 5.0,
    },
    "a penalty on the top decisions of the batch": {"trust.kind": "kl_cov", "trust.share": 0.2},
    "an exact Gaussian divergence": {"divergence.kind": "exact", "divergence.beta": 0.3},
    "a supervised term": {"auxiliary.supervised": 0.5, "policy_weight": 0.7},
    "an entropy bonus under a sequence ratio": {"entropy": 0.2, "ratio.kind": "geometric"},
    "smoothing over a member": {"smoothing.kind": "ema", "credit.temporal_decay.gamma": 0.7},
}


@pytest.mark.parametrize("name", USERS)
def test_a_member_too_large_for_one_backward_pass_trains_by_slices(name, problem):
    """Two decisions at a time through `cotangents` give the gradient of the whole update in one graph."""
    model, states, actions, rollouts, reference = problem
    objective = Objective.preset("grpo", **USERS[name])
    plan = objective.plan(objective.prepare(rollouts, objective.init()))
    objective.loss(scored(model, states, actions, reference, rollouts.mask), plan).backward()
    whole = gradients(model)
    assert sum(float(g.abs().sum()) for g in whole) > 1e-3

    model.zero_grad()
    with torch.no_grad():
        known = scored(model, states, actions, reference, rollouts.mask)
    cotangents = objective.cotangents(known, plan).scored
    for start in range(0, DECISIONS, 2):
        part = slice(start, start + 2)
        live = scored(model, states[:, part], actions[:, part], reference[:, part], rollouts.mask[:, part])
        value = sum(
            (c[:, part] * live.tensors()[field]).sum() for field, c in cotangents.tensors().items() if c.dim() == 2
        )
        value = value + sum((c * live.auxiliary[term]).sum() for term, c in cotangents.auxiliary.items())
        value.backward()
    for expected, got in zip(whole, gradients(model), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)
