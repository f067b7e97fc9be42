"""The loss of one of TRL's optimiser steps where the policy finds a sampled token impossible."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("trl")

from groupwise.integrations.trl.rollouts import Window
from groupwise.objective import Objective
from groupwise.records import Rollouts, Scored


@pytest.mark.parametrize("value", [float("-inf"), float("nan")])
@pytest.mark.parametrize(("name", "mean_entropy"), [("bnpo", False), ("kl_cov", False), ("bnpo", True)])
def test_an_impossible_token_is_no_nan_loss(name: str, mean_entropy: bool, value: float) -> None:
    """The first pass over a generation is on-policy: the old log-prob is the live one, here not finite in both."""
    objective = Objective.preset(name, **({"entropy": 0.5} if mean_entropy else {}))
    mask = torch.ones(4, 2, dtype=torch.bool)
    batch = objective.prepare(
        Rollouts(torch.tensor([0, 0, 1, 1]), mask, torch.zeros(4, 2), {"right": [1.0, 0.0, 0.0, 1.0]}),
        objective.init(),
    )
    live = torch.full((4, 2), -1.0, requires_grad=True)
    place = torch.zeros(4, 2, dtype=torch.bool)
    place[0, 0] = True
    rows = [torch.arange(2), torch.arange(2, 4)]

    def scored(index: int) -> Scored:
        entropy = torch.where(place, value, torch.full((4, 2), 0.8))[rows[index]] if mean_entropy else None
        return Scored(torch.where(place, value, live)[rows[index]], entropy)

    window = Window.open(
        objective, batch, rows, True, objective.init(), lambda total: total, scored, mean_entropy=mean_entropy
    )
    total = window.loss(scored(0)) + window.loss(scored(1))
    assert bool(total.isfinite())
    (gradient,) = torch.autograd.grad(total, live)
    assert bool(gradient.isfinite().all())
    assert gradient[0, 0] == 0
    assert gradient[0, 1] < 0 < gradient[1, 0]
    assert window.metrics(lambda total: total)["log_prob/not_finite"] == 1
