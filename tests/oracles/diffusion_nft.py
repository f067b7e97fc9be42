"""DiffusionNFT, arXiv 2509.16117, equation 5 and algorithm 1, and its code (NVlabs/DiffusionNFT): a good sample is
learnt by the policy `v_old + beta (v - v_old)`, a bad one by its mirror image, `v_old - beta (v - v_old)`, each error
over its own mean absolute value.
"""

from __future__ import annotations

import torch
from tests.oracles.common import Given, Hand, decisions, zero
from tests.oracles.flow_grpo import advantages_of
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, bound: float = 5.0, beta: float = 1e-4) -> Tensor:
    """From the two errors of each copy; `exact_divergence` is |v - v_ref|^2."""
    assert given.positive_error is not None
    assert given.negative_error is not None
    assert given.exact_divergence is not None
    advantages = advantages_of(given)
    total = zero(log_prob) + torch.zeros_like(given.exact_divergence).sum()
    for b, advantage in enumerate(advantages):
        share = min(max(advantage, -bound), bound) / bound / 2 + 0.5
        positions = decisions(given, b)
        for t in positions:
            term = share * given.positive_error[b, t] + (1 - share) * given.negative_error[b, t]
            total = total + (bound * term + beta * given.exact_divergence[b, t]) / len(positions)
    return total / len(advantages)


def errors_of(
    prediction: Tensor, old: Tensor, clean: Tensor, noise: Tensor, time: float, *, strength: float = 1.0
) -> tuple[Tensor, Tensor]:
    """The errors of one copy `x_t = (1 - t) x0 + t e` of a flow, over `strength`, element by element.

    Args:
        prediction, old, clean, noise: `v`, `v_old`, `x0` and `e` of one shape.
    """
    return (
        _error(strength * prediction + (1 - strength) * old, clean, noise, time) / strength,
        _error((1 + strength) * old - strength * prediction, clean, noise, time) / strength,
    )


def _error(velocity: Tensor, clean: Tensor, noise: Tensor, time: float) -> Tensor:
    copy = (1 - time) * clean + time * noise
    gaps = [x - time * v - x0 for x, v, x0 in zip(copy.flatten(), velocity.flatten(), clean.flatten(), strict=True)]
    size = max(sum(abs(float(gap.detach())) for gap in gaps) / len(gaps), 1e-5)
    squares = [gap**2 / size for gap in gaps]
    return sum(squares[1:], squares[0]) / len(squares)


# A = -+1.5811388, errors 1/2 and 1. Members 0, 2 and the others: (3.4188612 / 2 + 6.5811388) / 2 = 4.1452847,
# (6.5811388 / 2 + 3.4188612) / 2 = 3.3547153, 3.75. Loss 3.75 + 1e-4 / 4. Gradients (5 +- A) / 2 / (5 n), 1e-4 / (5 n).
HAND = Hand(
    3.750025,
    [[0.0] * 3] * 5,
    exact_gradient=[[1e-5, 1e-5, 0.0], [2e-5, 0.0, 0.0], [1e-4 / 15] * 3, [2e-5, 0.0, 0.0], [2e-5, 0.0, 0.0]],
    positive_gradient=[
        [0.1709430585, 0.1709430585, 0.0],
        [0.5, 0.0, 0.0],
        [0.2193712943] * 3,
        [0.5, 0.0, 0.0],
        [0.5, 0.0, 0.0],
    ],
    negative_gradient=[
        [0.3290569415, 0.3290569415, 0.0],
        [0.5, 0.0, 0.0],
        [0.1139620390] * 3,
        [0.5, 0.0, 0.0],
        [0.5, 0.0, 0.0],
    ],
)
