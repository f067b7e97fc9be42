"""AWM, arXiv 2509.25050, and its code (scxue/advantage_weighted_matching): PPO's surrogate of Flow-GRPO's advantages,
with the negative loss of pre-training on noised copies in the place of log-probs, and the squared distance of the
prediction from the reference's.
"""

from __future__ import annotations

from tests.oracles import flow_grpo
from tests.oracles.common import Given, Hand
from torch import Tensor


def loss(log_prob: Tensor, given: Given, *, clip: float = 1.0, beta: float = 0.003) -> Tensor:
    """`exact_divergence` is |v - v_ref|^2 of a copy, the mean over elements."""
    return flow_grpo.loss(log_prob, given, clip=clip, beta=beta)


def log_prob_of(
    prediction: Tensor, clean: Tensor, noise: Tensor, time: float, *, weighting: str = "power", power: float = 0.25
) -> Tensor:
    """The surrogate of one copy `(1 - t) x0 + t e` of a flow, element by element.

    Args:
        prediction, clean, noise: `v`, `x0` and `e` of one shape.
    """
    values = zip(prediction.flatten(), clean.flatten(), noise.flatten(), strict=True)
    squares = [(v - (e - x)) ** 2 for v, x, e in values]
    error = sum(squares[1:], squares[0]) / len(squares)
    if weighting == "uniform":
        return -error
    if weighting == "time":
        return -error * time
    if weighting == "time_squared":
        return -error * time**2
    if weighting == "huber":
        return -((error + 1e-10) ** 0.5 - 1e-5) * time
    assert weighting == "power"
    return -((error + 1e-10) ** power - 1e-10**power) * time / power


# A = -+1.5811388, no ratio leaves 0 .. 2. Loss -1.5811388 / 5 ((1.1 + 1.5 + 0.5) / 3 - (1.5 + 0.5) / 2) + 0.003 * 0.25.
# Gradients -r A / (5 n); by the divergence 0.003 / (5 n).
HAND = Hand(
    -0.009790925534,
    [
        [0.2371708245, 0.07905694150, 0.0],
        [0.0] * 3,
        [-0.1159501809, -0.1581138830, -0.05270462767],
        [0.0] * 3,
        [0.0] * 3,
    ],
    exact_gradient=[[0.0003, 0.0003, 0.0], [0.0006, 0.0, 0.0], [0.0002] * 3, [0.0006, 0.0, 0.0], [0.0006, 0.0, 0.0]],
)
