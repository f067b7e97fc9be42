"""REINFORCE with the baselines of RLOO, REINFORCE++, OPO and TOPR."""

from __future__ import annotations

import math

from tests.oracles.common import (
    Given,
    decisions,
    deviation,
    group_mean,
    group_of,
    is_flat,
    num_decisions,
    oracle,
    token_clip,
    zero,
)
from torch import Tensor


# lp_old - lp_ref summed: member 0: -(ln 1.5 + ln 2) - ln 0.5 = -0.4054651, member 1: -ln 2 = -0.6931472,
# member 2: -ln 0.825 = 0.1923719, members 3 and 4: 0. At beta 0.1 the rewards are 0.0405465, 1.0693147, 1.9807628, 1,
# 1, so A = -1.4844922, 0.0586600, 1.4258322, 0, 0. Sums of lp: -2.2876821, -0.3068528, -3.1923719. Loss -(3.3960464 -
# 0.0179999 - 4.5517866) / 5; gradients -A / 5.
@oracle(
    0.2347480632,
    [[0.2968984507, 0.2968984507, 0.0], [-0.01173201146, 0.0, 0.0], [-0.2851664393] * 3, [0.0] * 3, [0.0] * 3],
    {"beta": 0.1},
)
def rloo(log_prob: Tensor, given: Given, *, beta: float = 0.05) -> Tensor:
    """RLOO, arXiv 2402.14740: REINFORCE with the mean of the other members' rewards as the baseline, whole answers as
    actions.

    R'_b = R_b - beta sum_t (lp_old - lp_ref), A_b = R'_b - mean_{i != b} R'_i, loss = -mean_b A_b sum_t lp_t. The paper
    makes one update a rollout, so no ratio appears.

    A member alone in its group has no baseline and does not train.
    """
    assert given.reference_log_prob is not None
    num_members = len(given.group)
    shaped = list(given.rewards)
    for b in range(num_members):
        gaps = [float(given.old_log_prob[b, t] - given.reference_log_prob[b, t]) for t in decisions(given, b)]
        shaped[b] -= beta * math.fsum(gaps)
    total = zero(log_prob)
    for b in range(num_members):
        others = [shaped[i] for i in group_of(given, b) if i != b]
        advantage = shaped[b] - math.fsum(others) / len(others) if others else 0.0
        for t in decisions(given, b):
            total = total - advantage * log_prob[b, t]
    return total / num_members


# At beta 0.1 the rewards are 0.0405465, 1.0693147, 1.9807628, 1, 1 (see rloo): mean 1.0181248, deviations -0.9775783,
# 0.0511899, 0.9626380, -0.0181248 twice, squares 1.8856086, std 0.6865873, A = -1.4238222, 0.0745570, 1.4020620,
# -0.0263984 twice. Surrogates 2.3 A, 1.2 A (dead), 2.8 A, A, A: -3.2747911 + 0.0894684 + 3.9257736 - 0.0527968 =
# 0.6876541, over 8. Gradients -A r / 8 where alive.
@oracle(
    -0.08595676337,
    [
        [0.2669666644, 0.0, 0.0],
        [0.0] * 3,
        [-0.1927835231, 0.0, -0.08762887413],
        [0.003299800147, 0.0, 0.0],
        [0.003299800147, 0.0, 0.0],
    ],
    {"beta": 0.1},
)
def reinforce_pp(
    log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2, beta: float = 0.01
) -> Tensor:
    """REINFORCE++, arXiv 2501.03262, section 3: A = whiten over the batch of R - beta sum_t (lp_old - lp_ref); PPO's
    clip, token mean.

    Every decision carries the member's whole penalty (the paper's at t: from t on), and the statistics are over
    members, unbiased: the preset says so.

    Groups play no part: a flat group keeps what the others make of it.
    """
    assert given.reference_log_prob is not None
    shaped = []
    for b, reward in enumerate(given.rewards):
        shaped.append(
            reward
            - beta
            * math.fsum(float(given.old_log_prob[b, t] - given.reference_log_prob[b, t]) for t in decisions(given, b))
        )
    mean, std = math.fsum(shaped) / len(shaped), deviation(shaped)
    return token_clip(log_prob, given, [(value - mean) / std for value in shaped], clip_low, clip_high)


# Centred -1, 0, 1, 0, 0: std 0.7071068, as Lite PPO: -0.0883883. k2 on member 0's first decision: 0.5 * 0.6931472^2 =
# 0.2402265, times 0.01 / 8 = 0.0003003; its gradient -0.6931472 * 0.01 / 8 = -0.0008664.
@oracle(
    -0.08808806451, [[0.2642986089, 0.0, 0.0], [0.0] * 3, [-0.1944543648, 0.0, -0.08838834765], [0.0] * 3, [0.0] * 3]
)
def reinforce_pp_baseline(
    log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2, beta: float = 0.01
) -> Tensor:
    """REINFORCE++ with a baseline, arXiv 2501.03262, section 3: A = whiten over the batch of R - mean_group(R), k2 in
    the loss; PPO's clip, token mean.

    k2 = (lp - lp_ref)^2 / 2. Statistics over members, unbiased: the preset says so.

    The mean over the batch is 0 already, since every group's is.
    """
    assert given.reference_log_prob is not None
    centred = [reward - group_mean(given, b) for b, reward in enumerate(given.rewards)]
    mean, std = math.fsum(centred) / len(centred), deviation(centred)
    total = token_clip(log_prob, given, [(value - mean) / std for value in centred], clip_low, clip_high)
    for b in range(len(given.group)):
        for t in decisions(given, b):
            total = total + beta * (log_prob[b, t] - given.reference_log_prob[b, t]) ** 2 / (2.0 * num_decisions(given))
    return total


# Lengths 2, 1, 3, rewards 0, 1, 2: b = 7 / 6, A = -7/6, -1/6, 5/6. Sums of lp -2.2876821, -0.3068528, -3.1923719:
# S = 2.6689624 + 0.0511421 - 2.6603099 = 0.0597946, over 8. Gradients 7 / 48, 1 / 48, -5 / 48.
@oracle(-0.007474330487, [[7 / 48, 7 / 48, 0.0], [1 / 48, 0.0, 0.0], [-5 / 48] * 3, [0.0] * 3, [0.0] * 3])
def opo(log_prob: Tensor, given: Given) -> Tensor:
    """OPO, arXiv 2505.23585, equation 7: the length-weighted baseline b = sum_j l_j R_j / sum_j l_j of a group, exactly
    on-policy, no ratio, no KL.

    L = -1/N sum_bt (R_b - b) lp_bt, the token mean of its code (verl).

    A flat group has R = b.
    """
    total = zero(log_prob)
    for b, reward in enumerate(given.rewards):
        lengths = {i: len(decisions(given, i)) for i in group_of(given, b)}
        weighted = math.fsum(length * given.rewards[i] for i, length in lengths.items())
        advantage = 0.0 if is_flat(given, b) else reward - weighted / sum(lengths.values())
        for t in decisions(given, b):
            total = total - advantage * log_prob[b, t]
    return total / num_decisions(given)


# Baseline 1: A = -1, 0, 1, 0, 0. Member 0: ratio 0.75, S = 0.75 * 2.2876821 = 1.7157616; member 2: weight 1, S =
# -3.1923719. Loss (3.1923719 - 1.7157616) / 5; gradients 0.75 / 5, -1 / 5.
@oracle(0.2953220677, [[0.15, 0.15, 0.0], [0.0] * 3, [-0.2] * 3, [0.0] * 3, [0.0] * 3], {"baseline": 1.0})
def topr(log_prob: Tensor, given: Given, *, baseline: float = 0.0) -> Tensor:
    """TOPR, arXiv 2503.14286, equations 8 and 9: good trajectories with weight one, bad ones with the truncated
    importance ratio [pi / mu]_0^1.

    gradient = E_mu[ sum_{R >= 0} R grad log pi(tau) + sum_{R < 0} min(pi / mu, 1) R grad log pi(tau) ], tau a whole
    member, R less a baseline.

    Mean over members of sums over decisions; groups play no part.
    """
    total = zero(log_prob)
    for b, reward in enumerate(given.rewards):
        positions = decisions(given, b)
        gap = math.fsum(float(log_prob[b, t].detach() - given.old_log_prob[b, t]) for t in positions)
        weight = 1.0 if reward >= baseline else min(math.exp(gap), 1.0)
        for t in positions:
            total = total - weight * (reward - baseline) * log_prob[b, t]
    return total / len(given.group)
