"""The innovations of source 000, alone and together."""

from __future__ import annotations

import math

import torch
from tests.oracles.common import (
    Given,
    asymmetric_clipped,
    clipped,
    decay_credit,
    decisions,
    gradient_signal,
    mean_one,
    moving_average,
    num_decisions,
    oracle,
    ratios_of,
    softmax_credit,
    z_score,
    zero,
)
from torch import Tensor


# Member 0: 1.5, 0.9 * 0.5 + 0.1 * 1.5 = 0.6: S = -1.5, -0.8 (dead). Member 2: 1.1, 0.9 * 1.5 + 0.11 = 1.46,
# 0.9 * 0.5 + 0.146 = 0.596: S = 1.1, 1.2 (dead), 0.596. Sum 0.596, N = 8. Gradient of member 2:
# 1.1 + 0.1 * 0.1 * 1.1 = 1.111, 0.1 * 0.9 * 1.5 = 0.135, 0.9 * 0.5 = 0.45, each over -8.
@oracle(-0.0745, [[0.1875, 0.0, 0.0], [0.0] * 3, [-0.138875, -0.016875, -0.05625], [0.0] * 3, [0.0] * 3])
def ema(log_prob: Tensor, given: Given, *, beta: float = 0.9, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """Innovation 2.1 of the original project: EMA smoothing of the ratio, on PPO's clip at 0.2 with a token mean.

    r'_1 = r_1, r'_t = beta r_t + (1 - beta) r'_{t-1} over the valid decisions of one member, differentiated.

    The smoothed ratio goes where the ratio went.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        for ratio in moving_average(ratios_of(log_prob, given, b), beta):
            total = total - clipped(ratio, advantage, clip_low, clip_high)
    return total / num_decisions(given)


# exp(|lp|) = e / r, so the softmax is proportional to 1 / r. Member 0: 1/1.5 : 1/0.5 = 1 : 3, c = 0.5, 1.5.
# Member 2: 0.9090909, 0.6666667, 2 of 3.5757576, times 3: c = 0.7627119, 0.5593220, 1.6779661.
# 0.5 * -1.5 + 1.5 * -0.8 = -1.95; 0.7627119 * 1.1 + 0.5593220 * 1.2 + 1.6779661 * 0.5 = 2.3491525. Sum 0.3991525, N =
# 8.
@oracle(-0.04989406780, [[0.09375, 0.0, 0.0], [0.0] * 3, [-0.1048728814, 0.0, -0.1048728814], [0.0] * 3, [0.0] * 3])
def gradient_adaptive(
    log_prob: Tensor, given: Given, *, temperature: float = 1.0, clip_low: float = 0.2, clip_high: float = 0.2
) -> Tensor:
    """Innovation 2.2 of the original project: credit c_t = n softmax_t(g_t / T), outside the trust region.

    g is the exact norm of the score with respect to the logits where given, the surprisal |lp| otherwise; detached
    either way. Surrogate and aggregation are PPO's clip at 0.2 and a token mean.

    Mean one over a member's decisions, so a member of one decision has credit 1.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        if not given.mask[b].any():
            continue
        credit = softmax_credit(gradient_signal(log_prob, given, b), temperature)
        for weight, ratio in zip(credit, ratios_of(log_prob, given, b), strict=True):
            total = total - weight * clipped(ratio, advantage, clip_low, clip_high)
    return total / num_decisions(given)


# Member 0: rho = (1.5 + 0.5) / 2 = 1, S = -1 twice. Member 2: rho = 3.1 / 3, S = 1.0333333 three times. Sum 1.1, N = 8.
# d rho / d lp_t = r_t / n, times n copies: gradients r_t / 8 and -r_t / 8.
@oracle(-0.1375, [[0.1875, 0.0625, 0.0], [0.0] * 3, [-0.1375, -0.1875, -0.0625], [0.0] * 3, [0.0] * 3])
def amic(log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """Innovation 2.3 of the original project: rho = (1/n) sum_t r_t for every decision of the member, differentiated.

    Surrogate and aggregation are PPO's clip at 0.2 and a token mean.

    All n decisions of a member share one surrogate; the token mean counts it n times.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        n = len(decisions(given, b))
        if n == 0:
            continue
        rho = torch.stack(ratios_of(log_prob, given, b)).sum() / n
        for _ in range(n):
            total = total - clipped(rho, advantage, clip_low, clip_high)
    return total / num_decisions(given)


# Gates: |r - 1| = 0.5: exp(-0.25 / 0.08) = 0.0439369; 0.1: exp(-0.125) = 0.8824969. Member 0: -0.0659054, -0.0219685;
# member 2: 0.9707466, 0.0659054, 0.0219685. Sum 0.9707466, N = 8; each gradient is minus its S over 8.
@oracle(
    -0.1213433241,
    [
        [0.008238175054, 0.002746058351, 0.0],
        [0.0] * 3,
        [-0.1213433241, -0.008238175054, -0.002746058351],
        [0.0] * 3,
        [0.0] * 3,
    ],
)
def ptrw(log_prob: Tensor, given: Given, *, sigma: float = 0.2) -> Tensor:
    """Innovation 2.4 of the original project: a Gaussian gate instead of a clip, S = sg(exp(-(r - 1)^2 / (2 sigma^2)))
    r A.

    The gate is detached: differentiated, it would reinforce bad decisions whose ratio exceeds 1.04. Token level, token
    mean.

    Not pessimistic: far from ratio 1 a decision of either sign falls silent.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        for ratio in ratios_of(log_prob, given, b):
            gate = math.exp(-((float(ratio.detach()) - 1.0) ** 2) / (2.0 * sigma**2))
            total = total - gate * ratio * advantage
    return total / num_decisions(given)


# gamma 0.5. Member 0: (1, 0.5) * 2 / 1.5 = 1.3333333, 0.6666667: -2 - 0.5333333 = -2.5333333. Member 2:
# (1, 0.5, 0.25) * 3 / 1.75 = 1.7142857, 0.8571429, 0.4285714: 1.8857143 + 1.0285714 + 0.2142857 = 3.1285714.
# Sum 0.5952381, N = 8. Gradients: 2 / 8, -1.8857143 / 8, -0.2142857 / 8.
@oracle(
    -0.07440476190,
    [[0.25, 0.0, 0.0], [0.0] * 3, [-0.2357142857, 0.0, -0.02678571429], [0.0] * 3, [0.0] * 3],
    {"gamma": 0.5},
)
def temporal_decay(
    log_prob: Tensor, given: Given, *, gamma: float = 0.95, clip_low: float = 0.2, clip_high: float = 0.2
) -> Tensor:
    """Innovation 2.5 of the original project: credit c_t proportional to gamma^(t-1), mean one, outside the trust
    region.

    Surrogate and aggregation are PPO's clip at 0.2 and a token mean.

    t counts valid decisions, not positions: holes in the mask do not decay.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        ratios = ratios_of(log_prob, given, b)
        for weight, ratio in zip(decay_credit(len(ratios), gamma), ratios, strict=True):
            total = total - weight * clipped(ratio, advantage, clip_low, clip_high)
    return total / num_decisions(given)


# Member 0: min(-1.5, -1.1) = -1.5, min(-0.5, -0.9) = -0.9 (dead). Member 2: 1.1, 1.3 (dead), 0.5. Sum 0.5, N = 8.
@oracle(-0.0625, [[0.1875, 0.0, 0.0], [0.0] * 3, [-0.1375, 0.0, -0.0625], [0.0] * 3, [0.0] * 3])
def asymmetric_clip(log_prob: Tensor, given: Given, *, eps_pos: float = 0.3, eps_neg: float = 0.1) -> Tensor:
    """Innovation 2.6 of the original project, with the minimum: eps = eps_pos where A > 0, eps_neg elsewhere, on both
    sides.

    S = min(r A, clip(r, 1 - eps, 1 + eps) A). Only the upper bound acts for A > 0 and only the lower for A < 0, so this
    is the plain clip with low = eps_neg and high = eps_pos. Token mean.

    Zero advantages contribute nothing whichever side they are counted on.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        for ratio in ratios_of(log_prob, given, b):
            total = total - asymmetric_clipped(ratio, advantage, eps_pos, eps_neg)
    return total / num_decisions(given)


# Smoothed ratios of py (1.5, 0.6; 1.1, 1.46, 0.596), credits of py at gamma 0.5.
# Member 0: -2 - 0.5333333. Member 2: 1.8857143 + 1.0285714 + 0.4285714 * 0.596 = 3.1697143. Sum 0.6363810, N = 8.
# Gradient of member 2: 1.8857143 + 0.4285714 * 0.011, 0.4285714 * 0.135, 0.4285714 * 0.45, each over -8.
@oracle(
    -0.07954761905,
    [[0.25, 0.0, 0.0], [0.0] * 3, [-0.2363035714, -0.007232142857, -0.02410714286], [0.0] * 3, [0.0] * 3],
    {"gamma": 0.5},
)
def conservative(
    log_prob: Tensor,
    given: Given,
    *,
    beta: float = 0.9,
    gamma: float = 0.95,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Tensor:
    """The original project's conservative combination: EMA smoothing (2.1) and temporal decay (2.5).

    On PPO's clip at 0.2 with a token mean; the decay multiplies the surrogate, not the ratio.

    Smooth the ratio, clip it, then weigh the surrogate.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        smoothed = moving_average(ratios_of(log_prob, given, b), beta)
        for weight, ratio in zip(decay_credit(len(smoothed), gamma), smoothed, strict=True):
            total = total - weight * clipped(ratio, advantage, clip_low, clip_high)
    return total / num_decisions(given)


# Smoothed ratios of py, credits of py. Member 0: 0.5 * -1.5 + 1.5 * min(-0.6, -0.9) = -2.1.
# Member 2: 0.7627119 * 1.1 + 0.5593220 * 1.3 + 1.6779661 * 0.596 = 2.5661695. Sum 0.4661695, N = 8. Gradient of
# member 2: 0.7627119 * 1.1 + 1.6779661 * 0.011, 1.6779661 * 0.135, 1.6779661 * 0.45, each over -8.
@oracle(
    -0.05827118644,
    [[0.09375, 0.0, 0.0], [0.0] * 3, [-0.1071800847, -0.02831567797, -0.09438559322], [0.0] * 3, [0.0] * 3],
)
def balanced(
    log_prob: Tensor,
    given: Given,
    *,
    beta: float = 0.9,
    temperature: float = 1.0,
    eps_pos: float = 0.3,
    eps_neg: float = 0.1,
) -> Tensor:
    """The original project's balanced combination: EMA (2.1), gradient-adaptive credit (2.2), asymmetric clip (2.6).
    Token mean.

    Smooth, clip by the sign of the advantage, weigh.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        if not given.mask[b].any():
            continue
        credit = softmax_credit(gradient_signal(log_prob, given, b), temperature)
        for weight, ratio in zip(credit, moving_average(ratios_of(log_prob, given, b), beta), strict=True):
            total = total - weight * asymmetric_clipped(ratio, advantage, eps_pos, eps_neg)
    return total / num_decisions(given)


# Member 0: rho = 1, gate 1, S = -1, credits (0.5, 1.5) sum to 2. Member 2: rho = 1.0333333, gate exp(-0.0333333^2 /
# 0.08) = 0.9862071, S = 1.0190807, credits 0.7627119, 0.5593220, 1.6779661 sum to 3. Loss -(3.0572421 - 2) / 8.
# Gradients 0.5 / 8, 1.5 / 8; -1.0190807 c_t / 8.
@oracle(
    -0.1321552577,
    [[0.0625, 0.1875, 0.0], [0.0] * 3, [-0.09715811637, -0.07124928534, -0.2137478560], [0.0] * 3, [0.0] * 3],
)
def aggressive(log_prob: Tensor, given: Given, *, temperature: float = 1.0, sigma: float = 0.2) -> Tensor:
    """The original project's aggressive combination: AMIC (2.3), gradient-adaptive credit (2.2), Gaussian region (2.4).

    rho_t = sg(rho) exp(lp_t - sg(lp_t)): differentiating rho itself would cancel the credit. Token mean.

    The gate is one number a member; the gradient of each decision is its credit times gate times rho times A.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        positions = decisions(given, b)
        if not positions:
            continue
        rho = math.fsum(math.exp(float(log_prob[b, t].detach() - given.old_log_prob[b, t])) for t in positions) / len(
            positions
        )
        gate = math.exp(-((rho - 1.0) ** 2) / (2.0 * sigma**2))
        credit = softmax_credit(gradient_signal(log_prob, given, b), temperature)
        for weight, t in zip(credit, positions, strict=True):
            level = rho * torch.exp(log_prob[b, t] - log_prob[b, t].detach())
            total = total - weight * gate * level * advantage
    return total / num_decisions(given)


# gamma 0.5. Member 0: 0.5 * 1.3333333 : 1.5 * 0.6666667 = 2 : 3, c = 0.8, 1.2: 0.8 * -1.5 + 1.2 * -0.9 = -2.28.
# Member 2: 1/1.1 : 0.5/1.5 : 0.25/0.5 = 0.9090909, 0.3333333, 0.5 of 1.7424242: c = 1.5652174, 0.5739130, 0.8608696:
# 1.7217391 + 0.5739130 * 1.3 + 0.8608696 * 0.596 = 2.9809043. Sum 0.7009043, N = 8. Gradient of member 2:
# 1.7217391 + 0.8608696 * 0.011, 0.8608696 * 0.135, 0.8608696 * 0.45, each over -8.
@oracle(
    -0.08761304348,
    [[0.15, 0.0, 0.0], [0.0] * 3, [-0.2164010870, -0.01452717391, -0.04842391304], [0.0] * 3, [0.0] * 3],
    {"gamma": 0.5},
)
def all_compatible(
    log_prob: Tensor,
    given: Given,
    *,
    beta: float = 0.9,
    temperature: float = 1.0,
    gamma: float = 0.95,
    eps_pos: float = 0.3,
    eps_neg: float = 0.1,
) -> Tensor:
    """Every innovation that excludes no other, at token level: EMA (2.1), gradient-adaptive (2.2), decay (2.5),
    asymmetric (2.6).

    The two credits multiply and the product is scaled back to mean one over the member's decisions. Token mean.

    Smooth, clip by the sign of the advantage, weigh by the renormalised product of both credits.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        smoothed = moving_average(ratios_of(log_prob, given, b), beta)
        if not smoothed:
            continue
        adaptive = softmax_credit(gradient_signal(log_prob, given, b), temperature)
        credit = mean_one([a * d for a, d in zip(adaptive, decay_credit(len(smoothed), gamma), strict=True)])
        for weight, ratio in zip(credit, smoothed, strict=True):
            total = total - weight * asymmetric_clipped(ratio, advantage, eps_pos, eps_neg)
    return total / num_decisions(given)
