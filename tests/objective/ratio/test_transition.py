"""GRPO-Guard's ratio, against Gaussian transitions written out."""

from __future__ import annotations

from dataclasses import replace

import torch
from tests.objective.small import close, member_ratios

from groupwise.objective.ratio import Transition


def test_reads_the_shift_and_nothing_else() -> None:
    decisions = member_ratios([4.0, 0.5], advantage=1.0)
    shift = torch.tensor([[0.3, -0.2]], dtype=torch.float64, requires_grad=True)
    level = Transition()(decisions.log_ratio, replace(decisions, mean_shift=shift))
    close(level, [[0.3, -0.2]])
    assert torch.autograd.grad(level.sum(), shift)[0].tolist() == [[1.0, 1.0]]


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
