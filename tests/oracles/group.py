"""GRPO, and the methods that change its baseline, its divisor or its clip."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from tests.oracles.common import (
    Given,
    clipped,
    decisions,
    deviation,
    group_mean,
    group_of,
    is_flat,
    num_decisions,
    oracle,
    ratios_of,
    token_clip,
    z_score,
    zero,
)
from torch import Tensor


# Surrogates: member 0 (A = -1) min(-1.5, -1.2) = -1.5 and min(-0.5, -0.8) = -0.8 (dead), mean -1.15; member 2 (A = 1)
# 1.1, 1.2 (dead), 0.5, mean 2.8 / 3. Sum -0.2166667, over B = 5 and negated: 0.0433333. KL on one decision only:
# 2 - ln 2 - 1 = 0.3068528, times 0.04 / (2 * 5) = 0.0012274. Gradients: 1.5 / 10 + 0.04 (1 - 2) / 10 = 0.146,
# -1.1 / 15, -0.5 / 15.
@oracle(
    0.04456074461, [[0.146, 0.0, 0.0], [0.0, 0.0, 0.0], [-0.07333333333, 0.0, -0.03333333333], [0.0] * 3, [0.0] * 3]
)
def grpo(
    log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2, beta: float = 0.04, ddof: int = 1
) -> Tensor:
    """GRPO, arXiv 2402.03300, equations 3 (objective) and 4 (the k3 estimator of the KL to the reference).

    J = 1/G sum_i 1/|o_i| sum_t [ min(r_t A, clip(r_t, 1 - eps, 1 + eps) A) - beta (exp(lp_ref - lp) - (lp_ref - lp) -
    1) ], averaged over prompts; every prompt has the same number of members, so that is the mean over members.

    Member mean of decision means; a member without decisions adds nothing and still counts in B.
    """
    assert given.reference_log_prob is not None
    advantages = z_score(given, ddof)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        for t, ratio in zip(positions, ratios_of(log_prob, given, b), strict=True):
            surrogate = clipped(ratio, advantage, clip_low, clip_high)
            gap = given.reference_log_prob[b, t] - log_prob[b, t]
            kl = torch.exp(gap) - gap - 1.0
            total = total - (surrogate - beta * kl) / len(positions)
    return total / len(advantages)


# Members 3 and 4 are dropped: N = 6. Member 0: -1.5, -0.8 (dead); member 2: 1.1, min(1.5, 1.28) = 1.28 (dead), 0.5.
# Sum 0.58, loss -0.58 / 6; gradients 1.5 / 6, -1.1 / 6, -0.5 / 6.
@oracle(-0.09666666667, [[0.25, 0.0, 0.0], [0.0] * 3, [-0.18333333333, 0.0, -0.08333333333], [0.0] * 3, [0.0] * 3])
def dapo(
    log_prob: Tensor,
    given: Given,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    correction: Mapping[tuple[int, int], float] | None = None,
) -> Tensor:
    """DAPO, arXiv 2503.14476, equations 8 (objective), 9 (advantage) and 11 (dynamic sampling: flat groups do not
    train).

    Token mean over all trained decisions of the update, clip-higher, no KL. The paper divides by the decisions of one
    group and then averages over prompts; the published code (verl) and this transcription divide once by all of them.
    The overlong penalty (equation 13) is a reward and arrives inside the rewards.

    Members of flat groups are dropped: they leave the divisor as well. `correction` is an overlay's weight by
        (member, place).
    """
    advantages = z_score(given)
    total, count = zero(log_prob), 0
    for b, advantage in enumerate(advantages):
        if is_flat(given, b):
            continue
        count += len(decisions(given, b))
        for t, ratio in zip(decisions(given, b), ratios_of(log_prob, given, b), strict=True):
            weight = 1.0 if correction is None else correction[b, t]
            total = total - weight * clipped(ratio, advantage, clip_low, clip_high)
    return total / max(count, 1)


# A = -1, 0, 1. Surrogates -1.5, -0.8 (dead); 1.1, 1.2 (dead), 0.5: sum 0.5. With L = 4: -0.5 / 20.
@oracle(-0.025, [[0.075, 0.0, 0.0], [0.0] * 3, [-0.055, 0.0, -0.025], [0.0] * 3, [0.0] * 3], {"length": 4})
def dr_grpo(
    log_prob: Tensor, given: Given, *, length: float = 1024.0, clip_low: float = 0.2, clip_high: float = 0.2
) -> Tensor:
    """Dr. GRPO, arXiv 2503.20783, section 3.2: no division by the group's std, none by the member's length.

    The code of the paper divides the masked sum of each member by a constant, the generation budget L: 1 / (B L).

    A = R - mean(R); the divisor B L counts every member.
    """
    num_members = len(given.group)
    total = zero(log_prob)
    for b in range(num_members):
        group = group_of(given, b)
        advantage = (
            0.0 if is_flat(given, b) else given.rewards[b] - math.fsum(given.rewards[i] for i in group) / len(group)
        )
        for ratio in ratios_of(log_prob, given, b):
            total = total - clipped(ratio, advantage, clip_low, clip_high)
    return total / (num_members * length)


# Surrogates -1.5, -0.8 (dead); 1.1, 1.2 (dead), 0.5: sum 0.5; N = 8.
@oracle(-0.0625, [[0.1875, 0.0, 0.0], [0.0] * 3, [-0.1375, 0.0, -0.0625], [0.0] * 3, [0.0] * 3])
def bnpo(log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """BNPO as TRL's loss type of that name: GRPO's clipped surrogate, no KL, mean over all decisions.

    TRL's mean is local to the micro-batch; this one is over the update batch. Not the Beta-normalisation paper.

    Every decision weighs 1 / N, those of flat groups included.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        for ratio in ratios_of(log_prob, given, b):
            total = total - clipped(ratio, advantage, clip_low, clip_high)
    return total / num_decisions(given)


# Rewards 0, 1, 2, 1, 1: std sqrt(2 / 4) = 0.7071068, A = -+1.4142136. As BNPO with A = -+1 (sum of surrogates 0.5,
# gradients 0.1875, -0.1375, -0.0625), times 1.4142136.
@oracle(
    -0.08838834765, [[0.2651650429, 0.0, 0.0], [0.0] * 3, [-0.1944543648, 0.0, -0.08838834765], [0.0] * 3, [0.0] * 3]
)
def lite_ppo(log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """Lite PPO, arXiv 2508.08221, sections 4 and 5: the group's mean, the batch's standard deviation, a token mean,
    PPO's loss without a KL.

    A_i = (R_i - mean_group) / std_batch(R), the unbiased standard deviation of all rewards.

    A flat group has R = mean.
    """
    std = deviation(given.rewards)
    return token_clip(
        log_prob,
        given,
        [(reward - group_mean(given, b)) / std for b, reward in enumerate(given.rewards)],
        clip_low,
        clip_high,
    )


# z-scores -1, 0, 1, 0, 0 and 0, -1, 1, -0.7071068, 0.7071068: x = -1, -0.5, 1.5, -0.3535534, 0.3535534, mean 0, squares
# 3.75, std 0.9682458, A = -1.0327956, -0.5163978, 1.5491933, -0.3651484, 0.3651484. Surrogates: member 0 (1.5 + 0.8) A,
# member 1 2 A, member 2 (1.1 + 1.2 + 0.5) A, members 3 and 4 cancel: -2.3754298 - 1.0327956 + 4.3377413 = 0.9295160,
# over 8. Gradients -A r / 8 where alive.
@oracle(
    -0.1161894999,
    [
        [0.1936491673, 0.0, 0.0],
        [0.1290994449, 0.0, 0.0],
        [-0.2130140840, 0.0, -0.09682458366],
        [0.04564354646, 0.0, 0.0],
        [-0.04564354646, 0.0, 0.0],
    ],
)
def gdpo(log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """GDPO, arXiv 2601.05242, equations 4 to 6: each reward z-scored in its group, the weighted sum whitened over the
    batch; PPO's clip, token mean.

    x_i = sum_k w_k (R_ik - mean_k) / std_k, A_i = (x_i - mean(x)) / std(x), both standard deviations unbiased.

    The first reward weighs 1, the second 1/2.
    """
    assert given.second is not None
    summed = [
        first + 0.5 * second
        for first, second in zip(z_score(given), z_score(replace(given, rewards=given.second)), strict=True)
    ]
    mean, std = math.fsum(summed) / len(summed), deviation(summed)
    return token_clip(log_prob, given, [(value - mean) / std for value in summed], clip_low, clip_high)


# Group means 1 and 1: A = -1, 0, 1, 0, 0, as BNPO.
@oracle(-0.0625, [[0.1875, 0.0, 0.0], [0.0] * 3, [-0.1375, 0.0, -0.0625], [0.0] * 3, [0.0] * 3])
def max_rl(log_prob: Tensor, given: Given, *, clip_low: float = 0.2, clip_high: float = 0.2) -> Tensor:
    """MaxRL, arXiv 2602.02710, section 3, and its code: A_i = (R_i - mean) / mean of the group, whose mean gradient is
    that of log success; clip, token mean.

    Rewards are not negative; a group without success has advantage 0.

    Without a small number in the divisor.
    """
    assert min(given.rewards) >= 0
    means = [group_mean(given, b) for b in range(len(given.group))]
    advantages = [
        0.0 if is_flat(given, b) else (reward - means[b]) / means[b] for b, reward in enumerate(given.rewards)
    ]
    return token_clip(log_prob, given, advantages, clip_low, clip_high)


# Accepted: members 1 to 4 with lp sums -0.3068528, -3.1923719, -1, -1: loss 5.4992247 / 8.
@oracle(0.6874030890, [[0.0] * 3, [-0.125, 0.0, 0.0], [-0.125] * 3, [-0.125, 0.0, 0.0], [-0.125, 0.0, 0.0]])
def rejection_sampling(log_prob: Tensor, given: Given, *, threshold: float = 0.5) -> Tensor:
    """Rejection sampling: cross-entropy on the members that the reward accepts; after RAFT, arXiv 2304.06767, algorithm
    1, without its ranking.

    loss = -1/N sum_b 1[R_b > threshold] sum_t lp_t, N all decisions sampled (RAFT averages over the accepted ones:
    another scale).

    Groups play no part.
    """
    total = zero(log_prob)
    for b, reward in enumerate(given.rewards):
        if reward > threshold:
            for t in decisions(given, b):
                total = total - log_prob[b, t]
    return total / num_decisions(given)


def advantages_of(given: Given) -> list[float]:
    """One a member, clipped at 5."""
    std = deviation(given.rewards, ddof=0)
    return [min(max((reward - group_mean(given, b)) / std, -5.0), 5.0) for b, reward in enumerate(given.rewards)]


# Rewards 0, 1, 2, 1, 1: std sqrt(2 / 5) = 0.6324555, A = -+1.5811388. Member 0: 1.5 A and 0.8 A (dead), mean 1.15;
# member 2: 1.1, 1.2 (dead) and 0.5, mean
# 2.8 / 3. Loss 1.5811388 (1.15 - 2.8 / 3) / 5 = 0.0685160; KL 0.04 * 0.25 = 0.01. Gradients 1.5 * 1.5811388 / 10, -1.1
# * 1.5811388 / 15, -0.5 * 1.5811388 / 15; by the divergence 0.04 / (5 n).
@oracle(
    0.07851601597,
    [[0.2371708245, 0.0, 0.0], [0.0] * 3, [-0.1159501809, 0.0, -0.05270462767], [0.0] * 3, [0.0] * 3],
    exact_gradient=[[0.004, 0.004, 0.0], [0.008, 0.0, 0.0], [0.04 / 15] * 3, [0.008, 0.0, 0.0], [0.008, 0.0, 0.0]],
)
def source_002(log_prob: Tensor, given: Given, *, clip: float = 0.2, beta: float = 0.04) -> Tensor:
    """Source 002 on DDPO's code (arXiv 2305.13301): the group's mean, the tracker's standard deviation, clip 0.2, KL to
    the reference at 0.04.

    Without a past of at least 16 rewards a prompt takes the population's standard deviation of the batch. Mean over a
    member's transitions, then over members.

    `exact_divergence` is |mu - mu_ref|^2 / (2 sigma^2) of a transition.
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


# A = -1.2247449, 0, 1.2247449 (biased std sqrt(2/3)). As GRPO: 0.0433333 * 1.2247449 = 0.0530723; KL 0.1 * 0.3068528 /
# 10 = 0.0030685; entropy 0.01 * 0.5 = 0.005 off. Gradients 0.15 * 1.2247449 - 0.1 / 10; -1.1 * 1.2247449 / 15; -0.5 *
# 1.2247449 / 15. By entropy: -0.01 / (5 n_b).
@oracle(
    0.05114080595,
    [[0.1737117307, 0.0, 0.0], [0.0] * 3, [-0.08981462390, 0.0, -0.04082482905], [0.0] * 3, [0.0] * 3],
    entropy_gradient=[
        [-0.001, -0.001, 0.0],
        [-0.002, 0.0, 0.0],
        [-0.0006666666667, -0.0006666666667, -0.0006666666667],
        [-0.002, 0.0, 0.0],
        [-0.002, 0.0, 0.0],
    ],
)
def source_003(
    log_prob: Tensor,
    given: Given,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    beta: float = 0.1,
    entropy_coefficient: float = 0.01,
    ddof: int = 0,
) -> Tensor:
    """Source 003: GRPO with z-scores of ddof 0, clip 0.2, k3 KL to the reference at 0.1 and an entropy bonus of 0.01.

    J = 1/G sum_i min(r_i A_i, clip(r_i, 1 - eps, 1 + eps) A_i) - beta KL(pi || pi_ref) + coefficient H, the ratio per
    token and the token terms averaged as in GRPO (arXiv 2402.03300, equation 3). The source adds 1e-8 to the std; here
    the std is exact.

    Divergence and entropy use the aggregation weights 1 / (B n_b) as they are.
    """
    assert given.reference_log_prob is not None
    assert given.entropy is not None
    advantages = z_score(given, ddof)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        for t, ratio in zip(positions, ratios_of(log_prob, given, b), strict=True):
            gap = given.reference_log_prob[b, t] - log_prob[b, t]
            kl = torch.exp(gap) - gap - 1.0
            term = (
                clipped(ratio, advantage, clip_low, clip_high) - beta * kl + entropy_coefficient * given.entropy[b, t]
            )
            total = total - term / len(positions)
    return total / len(advantages)
