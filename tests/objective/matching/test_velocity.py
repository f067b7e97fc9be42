"""The matching error in place of a log-prob, beside its transcription."""

from __future__ import annotations

import pytest
import torch
from tests.objective.matching_draws import drawn
from tests.oracles import awm

from groupwise.objective.matching import Velocity
from groupwise.testing import check_slot


@pytest.mark.parametrize("weighting", ["uniform", "time", "time_squared", "huber", "power"])
def test_the_log_prob_is_the_negative_loss_of_pre_training(weighting: str) -> None:
    copies = drawn(0)
    log_prob = Velocity.model_validate({"weighting": weighting, "power": 0.4})(copies.deviation())["log_prob"]
    expected = torch.stack(
        [
            awm.log_prob_of(*row, time, weighting=weighting, power=0.4)
            for *row, time in zip(copies.live, copies.clean, copies.noise, copies.time.tolist(), strict=True)
        ]
    )
    cotangent = torch.arange(1.0, 5.0, dtype=torch.float64)
    by_hand, ours = (torch.autograd.grad((value * cotangent).sum(), copies.live)[0] for value in (expected, log_prob))
    assert torch.allclose(log_prob, expected, rtol=0, atol=1e-12)
    assert torch.allclose(ours, by_hand, rtol=0, atol=1e-12)


def test_a_perfect_prediction_has_a_finite_gradient() -> None:
    copies = drawn(0)
    perfect = (copies.noise - copies.clean).requires_grad_()
    for weighting in ("huber", "power"):
        matching = Velocity.model_validate({"weighting": weighting})
        total = matching(copies.deviation(live=perfect))["log_prob"].sum()
        assert float(total) == pytest.approx(0.0, abs=1e-12)
        assert not torch.autograd.grad(total, perfect)[0].isnan().any()


def test_the_laws_of_a_slot_hold() -> None:
    check_slot(Velocity())
