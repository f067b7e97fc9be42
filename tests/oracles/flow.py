"""Methods of flows and diffusion models."""

from __future__ import annotations

import torch
from tests.oracles.common import Given, clipped, decisions, deviation, group_mean, oracle, ratios_of, zero
from torch import Tensor


def advantages_of(given: Given) -> list[float]:
    """One a member."""
    std = deviation(given.rewards, ddof=0)
    return [min(max((reward - group_mean(given, b)) / std, -5.0), 5.0) for b, reward in enumerate(given.rewards)]


# Rewards 0, 1, 2, 1, 1: std sqrt(2 / 5) = 0.6324555, A = -+1.5811388. Member 0: 1.5 A and 0.9999 A (dead), mean
# 1.24995; member 2: 1.0001 twice (dead) and 0.5, mean 0.8334. Surrogates 1.5811388 (0.8334 - 1.24995) / 5 = -0.1317247,
# loss 0.1317247; KL 0.04 * 0.25 = 0.01. Gradients 1.5 * 1.5811388 / 10, -0.5 * 1.5811388 / 15; by the divergence 0.04 /
# (5 n).
@oracle(
    0.1417246759,
    [[0.2371708245, 0.0, 0.0], [0.0] * 3, [0.0, 0.0, -0.05270462767], [0.0] * 3, [0.0] * 3],
    exact_gradient=[[0.004, 0.004, 0.0], [0.008, 0.0, 0.0], [0.04 / 15] * 3, [0.008, 0.0, 0.0], [0.008, 0.0, 0.0]],
)
def flow_grpo(log_prob: Tensor, given: Given, *, clip: float = 1e-4, beta: float = 0.04) -> Tensor:
    """Flow-GRPO, arXiv 2505.05470, equations 5 to 7 and 13, and its code: GRPO per denoising transition with a Gaussian
    KL to the reference.

    A = (R - mean_group) / std_batch, the population's standard deviation, clipped at 5 (the code's `global_std`; the
    paper's is the group's). Mean over the transitions of a member, then over members.

    `exact_divergence` is |mu - mu_ref|^2 / (2 sigma^2 dt) of a transition.
    """
    assert given.exact_divergence is not None
    advantages = advantages_of(given)
    total = zero(log_prob) + torch.zeros_like(given.exact_divergence).sum()
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        for t, ratio in zip(positions, ratios_of(log_prob, given, b), strict=True):
            total = total - (clipped(ratio, advantage, clip, clip) - beta * given.exact_divergence[b, t]) / len(
                positions
            )
    return total / len(advantages)


# A = -+1.5811388. Member 0 (A < 0): 1.5 moves back and stays, 0.5 is left out. Member 2: 1.1 has not diverged, 1.5 is
# left out, 0.5 moves back. Loss -1.5811388 / 5 ((1.1 + 0.5) / 3 - 1.5 / 2). Gradients -r A / (5 n).
@oracle(
    0.06851601597,
    [[0.2371708245, 0.0, 0.0], [0.0] * 3, [-0.1159501809, 0.0, -0.05270462767], [0.0] * 3, [0.0] * 3],
)
def flow_dppo(log_prob: Tensor, given: Given, *, threshold: float = 1e-5) -> Tensor:
    """Flow-DPPO, arXiv 2606.11025, equations 14 and 18, as in its code (Tencent-Hunyuan/UniRL): Flow-GRPO without a
    clip, where a transition is left out that has diverged by the threshold and moves on in the direction of its
    advantage.

    Mean over a member's transitions, then over members.
    """
    assert given.old_divergence is not None
    advantages = advantages_of(given)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        for t, ratio in zip(positions, ratios_of(log_prob, given, b), strict=True):
            moves_on = float(ratio.detach()) > 1 if advantage > 0 else float(ratio.detach()) < 1
            if float(given.old_divergence[b, t]) >= threshold and advantage != 0 and moves_on:
                continue
            total = total - ratio * advantage / len(positions)
    return total / len(advantages)


# rho = r^2 with sigma sqrt(dt) = 2, and 1 where the drift is ln 2. Member 0 (A = -1.5811388, dt 1/2): 2.25 and 1, S = 2
# * 1.625 A; member 2 (A = 1.5811388, dt 1/4): 1.21 and 2.25 held at 1.000002, 0.25 alive, S = 4 * 0.7500013 A. Loss
# -1.5811388 (3.0000053 - 3.25) / 5. Gradients -2 rho A / (dt 5 n): 2 * 2.25 * 1.5811388 * 2 / 10, 2 * 1.5811388 * 2 /
# 10, -2 * 0.25 * 1.5811388 * 4 / 15.
@oracle(
    0.07905525496,
    [[1.423024947, 0.6324555320, 0.0], [0.0] * 3, [0.0, 0.0, -0.2108185107], [0.0] * 3, [0.0] * 3],
)
def grpo_guard(log_prob: Tensor, given: Given, *, clip: float = 2e-6) -> Tensor:
    """GRPO-Guard, arXiv 2510.22319, equations 8 (RatioNorm) and 12 (reweighting), on Flow-GRPO.

    log rho = sigma sqrt(dt) (log r + |mu - mu_old|^2 / (2 sigma^2 dt)); clipped surrogate times 1 / dt. Advantages as
    in Flow-GRPO, no KL.

    Mean over a member's transitions, then over members.
    """
    assert given.noise is not None
    assert given.drift is not None
    assert given.step_size is not None
    advantages = advantages_of(given)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        for t in positions:
            ratio = torch.exp(given.noise[b, t] * (log_prob[b, t] - given.old_log_prob[b, t] + given.drift[b, t]))
            total = total - clipped(ratio, advantage, clip, clip) / given.step_size[b, t] / len(positions)
    return total / len(advantages)


# A = -+1.5811388, no ratio leaves 0 .. 2. Loss -1.5811388 / 5 ((1.1 + 1.5 + 0.5) / 3 - (1.5 + 0.5) / 2) + 0.003 * 0.25.
# Gradients -r A / (5 n); by the divergence 0.003 / (5 n).
@oracle(
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
def awm(log_prob: Tensor, given: Given, *, clip: float = 1.0, beta: float = 0.003) -> Tensor:
    """AWM, arXiv 2509.25050, and its code (scxue/advantage_weighted_matching): PPO's surrogate of Flow-GRPO's
    advantages, with the negative loss of pre-training on noised copies in the place of log-probs, and the squared
    distance of the prediction from the reference's.

    `exact_divergence` is |v - v_ref|^2 of a copy, the mean over elements.
    """
    return flow_grpo(log_prob, given, clip=clip, beta=beta)


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


# A = -+1.5811388, errors 1/2 and 1. Members 0, 2 and the others: (3.4188612 / 2 + 6.5811388) / 2 = 4.1452847,
# (6.5811388 / 2 + 3.4188612) / 2 = 3.3547153, 3.75. Loss 3.75 + 1e-4 / 4. Gradients (5 +- A) / 2 / (5 n), 1e-4 / (5 n).
@oracle(
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
def diffusion_nft(log_prob: Tensor, given: Given, *, bound: float = 5.0, beta: float = 1e-4) -> Tensor:
    """DiffusionNFT, arXiv 2509.16117, equation 5 and algorithm 1, and its code (NVlabs/DiffusionNFT): a good sample is
    learnt by the policy `v_old + beta (v - v_old)`, a bad one by its mirror image, `v_old - beta (v - v_old)`, each
    error over its own mean absolute value.

    From the two errors of each copy; `exact_divergence` is |v - v_ref|^2.
    """
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
