"""AMIC's ratio: the arithmetic mean over a member's decisions."""

from __future__ import annotations

import math

import pytest
import torch
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.decisions import token_gradient
from groupwise.objective.ratio import Arithmetic, Geometric, Product, Token
from groupwise.statistics import finish


def test_arithmetic_mean_gives_each_decision_its_share_of_the_gradient() -> None:
    # (4 + 1) / 2 = 2.5; d rho / d lp_t = r_t / 2, over both copies r_t.
    decisions = member_ratios([4.0, 1.0, None], [None, None, None])
    level = Arithmetic()(decisions.log_ratio, decisions).exp()
    close(decisions.masked(level, fill=1.0), [[2.5, 2.5, 1.0], [1.0, 1.0, 1.0]])
    close(gradient(level, decisions), [[4.0, 1.0, 0.0], [0.0, 0.0, 0.0]])


def test_token_gradient_drops_the_weighting_by_the_ratio() -> None:
    decisions = member_ratios([4.0, 1.0])
    close(gradient(Arithmetic(gradient="token")(decisions.log_ratio, decisions).exp(), decisions), [[2.5, 2.5]])


def test_metrics_are_over_members_with_a_decision() -> None:
    # Member ratios 2.5 and 1.5: variance 0.25; lengths 2 and 1; the empty member does not count.
    decisions = member_ratios([4.0, 1.0], [1.5], [None, None])
    numbers = finish(Arithmetic().measure(Arithmetic()(decisions.log_ratio, decisions), decisions))
    assert numbers == pytest.approx({"amic/sequence_weights_variance": 0.25, "amic/avg_sequence_length": 1.5})


# GSPO's ratio: the geometric mean over a member's decisions.


def test_geometric_mean_shares_its_gradient() -> None:
    # sqrt(4 * 1) = 2; each of the two decisions carries 2 * (2 / 2) over both copies.
    decisions = member_ratios([4.0, None, 1.0], [None, None, None])
    level = decisions.masked(Geometric()(decisions.log_ratio, decisions).exp(), fill=1.0)
    close(level, [[2.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    close(gradient(level, decisions), [[2.0, 0.0, 2.0], [0.0, 0.0, 0.0]])


def test_geometric_token_gradient_is_each_decisions_own() -> None:
    decisions = member_ratios([4.0, 1.0])
    level = Geometric(gradient="token")(decisions.log_ratio, decisions).exp()
    close(level, [[2.0, 2.0]])
    close(gradient(level[:, :1].expand(1, 2) * 0 + level * level.new_tensor([[1.0, 0.0]]), decisions), [[2.0, 0.0]])


# The ratio of the whole member: the product over its decisions.


def test_product_and_its_gradient() -> None:
    # 4 * 0.5 = 2; both copies carry the gradient of the whole product.
    decisions = member_ratios([4.0, None, 0.5], [None, None, None])
    level = Product()(decisions.log_ratio, decisions).exp()
    close(decisions.masked(level, fill=1.0), [[2.0, 1.0, 2.0], [1.0, 1.0, 1.0]])
    close(gradient(level, decisions), [[4.0, 0.0, 4.0], [0.0, 0.0, 0.0]])


def test_product_token_gradient_is_each_decisions_own() -> None:
    decisions = member_ratios([4.0, 0.5])
    close(gradient(Product(gradient="token")(decisions.log_ratio, decisions).exp(), decisions), [[2.0, 2.0]])


def test_clamped_in_log_space_without_gradient_beyond() -> None:
    decisions = member_ratios([math.exp(50.0), math.exp(50.0)], [math.exp(-50.0), math.exp(-50.0)], old=-60.0)
    level = Product()(decisions.log_ratio, decisions)
    close(level, [[80.0, 80.0], [-80.0, -80.0]])
    close(gradient(level, decisions), [[0.0, 0.0], [0.0, 0.0]])


# One ratio a decision.


def test_each_decision_keeps_its_ratio_and_gradient() -> None:
    decisions = member_ratios([2.0, 0.5])
    level = Token()(decisions.log_ratio, decisions).exp()
    close(level, [[2.0, 0.5]])
    close(gradient(level, decisions), [[2.0, 0.5]])


# GRPO-Guard's ratio, against Gaussian transitions written out.


def test_the_shift_is_the_normalised_log_ratio_of_the_paper() -> None:
    # log rho = s (d + |mu - mu_old|^2 / (2 s^2)), s = sigma sqrt(dt), means over dimensions; d from Gaussian log-probs.
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    old_mean, noise, s = (
        draw(3, 4, 50),
        draw(3, 4, 50),
        torch.rand(3, 4, 1, dtype=torch.float64, generator=generator) + 0.1,
    )
    mean = old_mean + 0.1 * draw(3, 4, 50)
    state = old_mean + s * noise
    log_ratio = ((state - old_mean).square() - (state - mean).square()).mean(-1) / (2 * s[..., 0] ** 2)
    drift = (mean - old_mean).square().mean(-1) / (2 * s[..., 0] ** 2)
    torch.testing.assert_close(
        (noise * (mean - old_mean)).mean(-1), s[..., 0] * (log_ratio + drift), rtol=1e-12, atol=1e-14
    )


def test_zero_on_average_where_the_plain_log_ratio_is_not() -> None:
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(4000, 16, dtype=torch.float64, generator=generator)
    move, s = torch.full((16,), 0.05, dtype=torch.float64), 0.1
    plain = (noise * move).mean(-1) / s - move.square().mean() / (2 * s**2)
    assert float(plain.mean()) < -0.1
    assert abs(float((noise * move).mean(-1).mean())) < 1e-3


# A member's ratio with each decision's own gradient.


def test_value_of_the_level_gradient_of_the_decision() -> None:
    decisions = member_ratios([4.0, 1.0])
    level = token_gradient(decisions.mean(decisions.log_ratio), decisions)
    close(level.exp(), [[2.0, 2.0]])
    close(gradient(level, decisions), [[1.0, 1.0]])
