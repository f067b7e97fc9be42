"""The two mirrored errors, beside their transcription, and the surrogate that is made of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.objective.small import close, drawn, member_ratios
from tests.oracles import flow

from groupwise.config import ConfigError, validate
from groupwise.objective import Objective
from groupwise.objective.decisions import Deviation
from groupwise.objective.matching import Mirrored, Velocity
from groupwise.objective.noise import NoiseTimes
from groupwise.testing import check_slot


@pytest.mark.parametrize("strength", [1.0, 0.1])
def test_the_errors_are_those_of_the_transcription(strength: float) -> None:
    copies = drawn(1)
    fields = Mirrored(strength=strength)(copies.deviation())
    rows = zip(copies.live, copies.old, copies.clean, copies.noise, copies.time.tolist(), strict=True)
    pairs = [flow.errors_of(*row, time, strength=strength) for *row, time in rows]
    for place, name in enumerate(("positive_error", "negative_error")):
        expected = torch.stack([pair[place] for pair in pairs])
        by_hand, ours = (
            torch.autograd.grad(value.sum(), copies.live, retain_graph=True)[0] for value in (expected, fields[name])
        )
        assert torch.allclose(fields[name], expected, rtol=0, atol=1e-11)
        assert torch.allclose(ours, by_hand, rtol=0, atol=1e-11)


def test_on_policy_the_gradient_is_the_weighted_loss_of_pre_training() -> None:
    # At v = v_old the two gradients are opposite: r and 1 - r leave 2 r - 1 = A / c of the normalised loss.
    copies = drawn(2)
    on_policy = replace(copies, old=copies.live.detach())
    positive, negative, of_small_strength = (
        torch.autograd.grad(Mirrored(strength=strength)(on_policy.deviation())[name].sum(), copies.live)[0]
        for name, strength in (("positive_error", 1.0), ("negative_error", 1.0), ("positive_error", 0.1))
    )
    assert torch.allclose(positive, -negative, rtol=0, atol=1e-12)
    assert torch.allclose(positive, of_small_strength, rtol=0, atol=1e-12)
    assert positive.abs().max() > 0.1


def test_a_member_of_advantage_0_pulls_back_to_the_policy_that_sampled() -> None:
    copies = drawn(3)
    # The old policy is right: both mirrored predictions are equally wrong, so that the pull is along v - v_old alone.
    old = copies.noise - copies.clean
    fields = Mirrored()(replace(copies, old=old).deviation())
    total = (fields["positive_error"] + fields["negative_error"]).sum()
    gradient = torch.autograd.grad(total, copies.live)[0]
    cosine = torch.nn.functional.cosine_similarity(gradient, copies.live - old, dim=1)
    assert torch.allclose(cosine, torch.ones_like(cosine))


def test_the_surrogate_clips_the_advantage() -> None:
    decisions = member_ratios([1.0], [1.0], [1.0], advantage=[5.0, -1.0, 0.0])
    errors = torch.tensor([[2.0], [2.0], [2.0]], dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64)
    decisions = replace(decisions, positive_error=errors[0], negative_error=errors[1])
    # c = 2: r = 1, 1/4, 1/2.
    surrogate = Mirrored(clip=2.0).surrogate(decisions)
    close(surrogate.value, [[-4.0], [-2.5], [-3.0]])
    assert surrogate.alive.all()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trust.kind", "clip"),
        ("ratio.kind", "geometric"),
        ("smoothing.kind", "ema"),
        ("correction.kind", "truncate"),
        ("compat", "verl_rl"),
    ],
)
def test_pieces_that_read_log_probs_are_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} = '{value}'.*matching.kind = 'mirrored'"):
        Objective.preset("diffusion_nft", **{key: value})


def test_mirrored_the_laws_of_a_slot_hold() -> None:
    check_slot(Mirrored())


# Without matching every objective reads what it always read.


def test_the_sampler_is_asked_for_what_the_loss_reads() -> None:
    grpo, awm = Objective.preset("flow_grpo"), Objective.preset("awm")
    assert grpo.requires_sampled == grpo.requires
    assert awm.requires_sampled == frozenset()
    assert Objective.preset("awm", **{"matching.deterministic": False}).requires_sampled == {"log_prob"}


# The matching error in place of a log-prob, beside its transcription.


@pytest.mark.parametrize("weighting", ["uniform", "time", "time_squared", "huber", "power"])
def test_the_log_prob_is_the_negative_loss_of_pre_training(weighting: str) -> None:
    copies = drawn(0)
    log_prob = Velocity.model_validate({"weighting": weighting, "power": 0.4})(copies.deviation())["log_prob"]
    expected = torch.stack(
        [
            flow.log_prob_of(*row, time, weighting=weighting, power=0.4)
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


def test_velocity_the_laws_of_a_slot_hold() -> None:
    check_slot(Velocity())


# Mirrored predictions lie on both sides of the old one.


def test_shares_of_the_way() -> None:
    live, old = torch.tensor([[3.0, 1.0]]), torch.tensor([[1.0, 1.0]])
    deviation = Deviation(live, old, torch.tensor([0.5]), torch.tensor([2.0]))
    assert deviation.clean().tolist() == [[6.0, 2.0]]
    assert deviation.clean(0.0).tolist() == [[2.0, 2.0]]
    assert deviation.clean(-1.0).tolist() == [[-2.0, 2.0]]


# Times are spread over their parts, and moved by the shift.


@pytest.mark.parametrize("levels", ["schedule", "uniform", "logit_normal"])
def test_one_time_lies_in_each_part(levels: str) -> None:
    uniform = torch.rand(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    time = validate(NoiseTimes, {"levels": levels, "num": 4, "low": 0.2, "high": 0.6}).at(uniform)
    assert bool((time.diff(dim=1) > 0).all())
    assert float(time.min()) > 0
    assert float(time.max()) < 1
    if levels != "logit_normal":
        for part in range(4):
            assert 0.2 + 0.1 * part <= float(time[:, part].min())
            assert float(time[:, part].max()) < 0.3 + 0.1 * part


def test_the_quartiles_of_logit_normal_times() -> None:
    # The quantiles 1/4 and 3/4 of a standard normal are -+0.6744898, whose sigmoids are 0.3374922 and its complement.
    time = NoiseTimes(levels="logit_normal", num=2).at(torch.full((1, 2), 0.5, dtype=torch.float64))
    assert time[0].tolist() == pytest.approx([0.3374922, 0.6625078], abs=1e-6)
