"""The two mirrored errors, beside their transcription, and the surrogate that is made of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.objective.matching_draws import drawn
from tests.objective.small import close, member_ratios
from tests.oracles import diffusion_nft

from groupwise.config import ConfigError
from groupwise.objective import Objective
from groupwise.objective.matching import Mirrored
from groupwise.testing import check_slot


@pytest.mark.parametrize("strength", [1.0, 0.1])
def test_the_errors_are_those_of_the_transcription(strength: float) -> None:
    copies = drawn(1)
    fields = Mirrored(strength=strength)(copies.deviation())
    rows = zip(copies.live, copies.old, copies.clean, copies.noise, copies.time.tolist(), strict=True)
    pairs = [diffusion_nft.errors_of(*row, time, strength=strength) for *row, time in rows]
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


def test_the_laws_of_a_slot_hold() -> None:
    check_slot(Mirrored())
