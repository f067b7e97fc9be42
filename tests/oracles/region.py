"""Trust regions on the ratio of a decision."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from tests.oracles.common import (
    Given,
    clipped,
    covariances,
    decisions,
    dual_clipped,
    group_mean,
    num_decisions,
    oracle,
    ratios_of,
    z_score,
    zero,
)
from torch import Tensor


# Cap 1.4. Member 0 (A = -1): 1.5 is capped at 1.4 and keeps its gradient; 0.5 is held at 0.8. Member 2 (A = 1): 1 / 1.1
# = 0.9090909; 1.5 is held at 1 / 1.2 = 0.8333333; 1 / 0.5 = 2 is capped at 1.4. S = -1.4 - 0.8 + 0.9090909 + 0.8333333
# + 1.4 = 0.9424242; over 8. Gradients -weight A / 8.
@oracle(
    -0.1178030303, [[0.175, 0.0, 0.0], [0.0] * 3, [-0.1136363636, 0.0, -0.175], [0.0] * 3, [0.0] * 3], {"bound": 1.4}
)
def aspo(log_prob: Tensor, given: Given, *, low: float = 0.2, high: float = 0.2, bound: float = 3.0) -> Tensor:
    """ASPO, arXiv 2510.06062, section 4: importance ratios of positive decisions flipped, r^ = pi_old pi / sg(pi^2);
    masked and dual-clipped softly.

    From its authors' code (Archer2.0, compute_policy_loss_archer). A > 0: nothing flows where r > 1 + high (r is
    replaced by that), else the weight is min(1 / r, c); A < 0: nothing flows where r < 1 - low, else the weight is
    min(r, c). A weight that c cuts keeps its gradient. Mean over all decisions.

    `pi / sg(pi)` carries the gradient of a weighted decision; a masked one is the constant at the edge
        of its clip.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        for t in decisions(given, b):
            ratio = math.exp(float(log_prob[b, t].detach() - given.old_log_prob[b, t]))
            held = ratio > 1.0 + high if advantage > 0 else ratio < 1.0 - low
            ratio = min(ratio, 1.0 + high) if advantage > 0 else max(ratio, 1.0 - low)
            weight = min(1.0 / ratio, bound) if advantage > 0 else min(ratio, bound)
            live = torch.exp(log_prob[b, t] - log_prob[b, t].detach())
            total = total - weight * advantage * (live.detach() if held else live)
    return total / num_decisions(given)


# Cap 1.2. lp = -1 + ln r. Member 0: weights 1.2, 0.5, lp -0.5945349, -1.6931472: S = 0.7134419, 0.8465736.
# Member 2: weights 1.1, 1.2, 0.5, lp -0.9046898, -0.5945349, -1.6931472: S = -0.9951588, -0.7134419, -0.8465736.
# The sum is -0.9951588; loss 0.9951588 / 8. Gradients: minus weight times A over 8.
@oracle(
    0.1243948503, [[0.15, 0.0625, 0.0], [0.0] * 3, [-0.1375, -0.15, -0.0625], [0.0] * 3, [0.0] * 3], {"ratio_max": 1.2}
)
def cispo(log_prob: Tensor, given: Given, *, ratio_max: float = 5.0) -> Tensor:
    """CISPO, arXiv 2506.13585, equations 4 and 5.

    J = 1 / sum_i |o_i| sum_i sum_t sg(clip(r_t)) A log pi(o_t); the paper uses no lower bound. ``ratio_max`` is
    absolute.

    No decision loses its gradient: only its weight is capped.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        for t in decisions(given, b):
            weight = min(math.exp(float(log_prob[b, t].detach() - given.old_log_prob[b, t])), ratio_max)
            total = total - weight * advantage * log_prob[b, t]
    return total / num_decisions(given)


# mean A = (3 - 2) / 8 = 0.125, mean lp = -7.7869068 / 8 = -0.9733634. Covariances: member 0 -1.125 * 0.3788285 =
# -0.4261821 and -1.125 * -0.7197838 = 0.8097568; member 1 -0.0833138; member 2 0.875 * (0.0686736, 0.3788285,
# -0.7197838) = 0.0600894, 0.3314749, -0.6298108; members 3 and 4 0.0033296. Between 0.3 and 0.6 lies member 2's second
# alone: drawn. S = -1.5 - 0.5 + 1.1 + 0.5 = -0.4, over 8.
@oracle(
    0.05,
    [[0.1875, 0.0625, 0.0], [0.0] * 3, [-0.1375, 0.0, -0.0625], [0.0] * 3, [0.0] * 3],
    {"lower": 0.3, "upper": 0.6},
)
def clip_cov(
    log_prob: Tensor,
    given: Given,
    *,
    clip_low: float = 1.0,
    clip_high: float = 1.0,
    share: float = 0.0002,
    lower: float = 1.0,
    upper: float = 5.0,
) -> Tensor:
    """Clip-Cov, arXiv 2505.22617, equations 9 to 11 and its code: a few decisions drawn among those of high covariance
    lose their gradient.

    cov = (A - mean A) (lp - mean lp) over all decisions; eligible where lower < cov < upper and the clip does not act;
    of them max(1, int(share N)) are drawn: those whose lots are smallest (the code permutes at random). Mean over all
    decisions, a wide clip of 1 as in its runs.

    A drawn decision adds nothing and stays in the divisor.
    """
    assert given.lot is not None
    advantages = z_score(given)
    spread = covariances(log_prob, given, advantages)
    ratios = {(b, t): math.exp(float(log_prob[b, t].detach() - given.old_log_prob[b, t])) for b, t in spread}
    eligible = []
    for (b, t), value in spread.items():
        held = (advantages[b] > 0 and ratios[b, t] > 1.0 + clip_high) or (
            advantages[b] < 0 and ratios[b, t] < 1.0 - clip_low
        )
        if lower < value < upper and not held:
            eligible.append((float(given.lot[b, t]), b, t))
    drawn = {(b, t) for _, b, t in sorted(eligible)[: max(1, int(share * num_decisions(given)))]}
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        for t in decisions(given, b):
            if (b, t) not in drawn:
                total = total - clipped(
                    (log_prob[b, t] - given.old_log_prob[b, t]).exp(), advantage, clip_low, clip_high
                )
    return total / num_decisions(given)


# The largest covariance is 0.8097568, of member 0's second decision (see clip_cov). S = -1.5 - 0.5 - 0.6931472 + 1.1 +
# 1.5 + 0.5 = 0.4068528, over 8. Gradients: 1.5 / 8; on the second 0.5 / 8 - 1 / 8, since |d| falls as lp rises there;
# -1.1 / 8, -1.5 / 8, -0.5 / 8.
@oracle(-0.05085660243, [[0.1875, -0.0625, 0.0], [0.0] * 3, [-0.1375, -0.1875, -0.0625], [0.0] * 3, [0.0] * 3])
def kl_cov(log_prob: Tensor, given: Given, *, share: float = 0.0002, coefficient: float = 1.0) -> Tensor:
    """KL-Cov, arXiv 2505.22617, equations 12 and 13 and its code: no clip; the decisions of highest covariance pay
    coefficient |lp - lp_old|.

    L = -1/N sum_bt (r A - 1[top] coefficient |lp - lp_old|), top the max(1, int(share N)) largest (A - mean A) (lp -
    mean lp).

    The penalty does not depend on the advantage.
    """
    advantages = z_score(given)
    spread = covariances(log_prob, given, advantages)
    top = sorted(spread, key=lambda place: -spread[place])[: max(1, int(share * num_decisions(given)))]
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        for t in decisions(given, b):
            gap = log_prob[b, t] - given.old_log_prob[b, t]
            total = total - gap.exp() * advantage + (coefficient * gap.abs() if (b, t) in top else 0.0)
    return total / num_decisions(given)


# c = 1.3: member 0: max(-1.5, -1.3) = -1.3 (dead), -0.8 (dead); member 2: 1.1, 1.2 (dead), 0.5. Sum 0.7, N = 8.
@oracle(-0.0875, [[0.0] * 3, [0.0] * 3, [-0.1375, 0.0, -0.0625], [0.0] * 3, [0.0] * 3], {"bound": 1.3})
def dual_clip(
    log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2, bound: float = 3.0
) -> Tensor:
    """Dual-clip PPO, arXiv 1912.09729, equation 5, with group z-scores and a token mean: verl's vanilla policy loss.

    A < 0: max(min(r A, clip(r) A), c A) with c > 1; otherwise the clipped surrogate.

    A bad decision whose ratio exceeds ``bound`` carries no gradient.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        for ratio in ratios_of(log_prob, given, b):
            total = total - dual_clipped(ratio, advantage, clip_low, clip_high, bound)
    return total / num_decisions(given)


# Member 0 (A = -1, tau 1.05): sigmoid(+-0.525) sum to 1, so the mean gate is 4 / 1.05 / 2 = 1.9047619. Member 2 (A = 1,
# tau 1): sigmoids of 0.1, 0.5, -0.5 are 0.5249792, 0.6224593, 0.3775407, sum 1.5249792, mean gate 2.0333056. Loss
# (1.9047619 - 2.0333056) / 5. Gradients -A 4 p (1 - p) r / (5 n): member 0 has p = 0.6283162, 4 p (1 - p) = 0.9341398,
# times 1.5 / 10 and 0.5 / 10; member 2 has 0.9975041, 0.9400148, 0.9400148, times 1.1 / 15, 1.5 / 15, 0.5 / 15.
@oracle(
    -0.02570873571,
    [
        [0.1401209735, 0.04670699116, 0.0],
        [0.0] * 3,
        [-0.07315030512, -0.09400148488, -0.03133382829],
        [0.0] * 3,
        [0.0] * 3,
    ],
)
def sapo(log_prob: Tensor, given: Given, *, tau_pos: float = 1.0, tau_neg: float = 1.05) -> Tensor:
    """SAPO, arXiv 2511.20347, equations 5 and 6: J = 1/G sum_i 1/|y_i| sum_t f(r_it) A_i, f(r) = (4 / tau) sigmoid(tau
    (r - 1)).

    tau is tau_pos where A > 0 and tau_neg elsewhere; the paper's are 1.0 and 1.05. z-scores as in GRPO, no KL.

    The gate is differentiated: its slope is 4 p (1 - p), one at r = 1.
    """
    advantages = z_score(given)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        tau = tau_pos if advantage > 0 else tau_neg
        for ratio in ratios_of(log_prob, given, b):
            gate = 4.0 / tau / (1.0 + torch.exp(-tau * (ratio - 1.0)))
            total = total - gate * advantage / len(decisions(given, b))
    return total / len(advantages)


def masked_loss(log_prob: Tensor, given: Given, beyond: Callable[[float, float], bool], maximum: float) -> Tensor:
    """`beyond(mu, pi)` says whether the divergence exceeds its threshold."""
    sampler = given.old_log_prob if given.behaviour_log_prob is None else given.behaviour_log_prob
    total = zero(log_prob)
    for b, reward in enumerate(given.rewards):
        advantage = reward - group_mean(given, b)
        for t in decisions(given, b):
            pi, mu = (math.exp(float(value[b, t].detach())) for value in (log_prob, sampler))
            if beyond(mu, pi) and ((advantage > 0 and pi > mu) or (advantage < 0 and pi < mu)):
                continue
            total = total - min(pi / mu, maximum) * advantage * log_prob[b, t]
    return total / num_decisions(given)


# mu = 1/e = 0.3678794; pi at the ratios 1.1, 1.5, 0.5: 0.4046674, 0.5518192, 0.1839397, so |pi - mu| = 0.0367879,
# 0.1839397, 0.1839397. Member 0 (A = -1): 1.5 grew, weight 1.5; 0.5 fell beyond .15, masked. Member 2 (A = 1): 1.1; 1.5
# masked; 0.5 fell, weight 0.5. S = 1.5 * 0.5945349 - 1.1 * 0.9046898 - 0.5 * 1.6931472 = -0.9499301; loss 0.9499301 /
# 8. Gradients -weight A / 8.
@oracle(0.1187412568, [[0.1875, 0.0, 0.0], [0.0] * 3, [-0.1375, 0.0, -0.0625], [0.0] * 3, [0.0] * 3])
def dppo_tv(log_prob: Tensor, given: Given, *, threshold: float = 0.15, maximum: float = 20.0) -> Tensor:
    """DPPO with a binary total-variation mask, arXiv 2602.04879, section 4; its authors' code (Stable-RL) for the
    truncation.

    L = -1/N sum_bt M sg(min(pi / mu, c)) A lp, mu the sampler's probability. M = 0 where A > 0 and pi - mu > delta, and
    where A < 0 and pi - mu < -delta. A = R - mean(R) inside the group (the runs of the paper switch the division by the
    standard deviation off).

    Masked decisions stay in the divisor.
    """
    return masked_loss(log_prob, given, lambda mu, pi: abs(pi - mu) > threshold, maximum)


# mu = 0.3678794. At ratio 1.5: mu ln(1/1.5) = -0.1491623, 0.6321206 ln(0.6321206 / 0.4481808) = 0.2173757, D =
# 0.0682134. At 0.5: 0.2549946 - 0.1614487 = 0.0935459. At 1.1: -0.0350627 + 0.0379019 = 0.0028392. Beyond .05 are the
# first two: the mask, and so all else, is DPPO-TV's.
@oracle(0.1187412568, [[0.1875, 0.0, 0.0], [0.0] * 3, [-0.1375, 0.0, -0.0625], [0.0] * 3, [0.0] * 3])
def dppo_kl(log_prob: Tensor, given: Given, *, threshold: float = 0.05, maximum: float = 20.0) -> Tensor:
    """DPPO with a binary KL mask, arXiv 2602.04879, section 4: as DPPO-TV with D = mu ln(mu / pi) + (1 - mu) ln((1 -
    mu) / (1 - pi)).

    KL of the sampler's (this decision, any other) from the policy's.
    """

    def beyond(mu: float, pi: float) -> bool:
        return mu * math.log(mu / pi) + (1.0 - mu) * math.log((1.0 - mu) / (1.0 - pi)) > threshold

    return masked_loss(log_prob, given, beyond, maximum)


# Member 0 (A = -1): d = 0.4054651 and max(-0.6931472, -0.4) = -0.4 (dead): mean 0.0027326, ratio 1.0027363. Member 2 (A
# = 1): 0.0953102, min(0.4054651, 0.4) = 0.4 (dead), -0.6931472: mean -0.0659457, ratio 0.9361817. Loss (1.0027363 -
# 0.9361817) / 5. Gradients 1.0027363 / 10 on the first, -0.9361817 / 15 on the first and third.
@oracle(
    0.01331091172, [[0.1002736289, 0.0, 0.0], [0.0] * 3, [-0.06241211534, 0.0, -0.06241211534], [0.0] * 3, [0.0] * 3]
)
def gmpo(log_prob: Tensor, given: Given, *, low: float = 0.4, high: float = 0.4) -> Tensor:
    """GMPO, arXiv 2507.20673, equation 4 and algorithm 1: J = 1/G sum_i { prod_t min(r^s, clip(r, e^-0.4, e^0.4)^s)^s
    }^(1/|o_i|) A_i, s = sgn(A_i).

    In log space, as its algorithm and code: d' = s min(s d, s clamp(d, -0.4, 0.4)), which is min(d, 0.4) for A > 0 and
    max(d, -0.4) for A < 0.

    A clipped decision is a constant; a member without decisions adds nothing and counts in B.
    """
    advantages = z_score(given)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        if not positions or advantage == 0.0:
            continue
        sign = 1.0 if advantage > 0 else -1.0
        gaps = []
        for t in positions:
            gap = log_prob[b, t] - given.old_log_prob[b, t]
            bounded = min(max(float(gap.detach()), -low), high)
            gaps.append(torch.tensor(bounded, dtype=gap.dtype) if sign * bounded < sign * float(gap.detach()) else gap)
        total = total - torch.exp(torch.stack(gaps).sum() / len(positions)) * advantage
    return total / len(advantages)
