"""One ratio a member."""

from __future__ import annotations

import math

import torch
from tests.oracles.common import Given, clipped, decisions, num_decisions, oracle, z_score, zero
from torch import Tensor


# Member 0: s = sqrt(0.75) = 0.866, A = -1: min(-0.866, -0.9997) = -0.9997 (dead). Member 2: s = 0.825^(1/3) =
# 0.9378887, A = 1: 0.9378887. Loss (0.9997 - 0.9378887) / 5; gradient -0.9378887 / (5 * 3) on each of its decisions.
@oracle(0.01236225446, [[0.0] * 3, [0.0] * 3, [-0.06252591518] * 3, [0.0] * 3, [0.0] * 3])
def gspo(log_prob: Tensor, given: Given, *, clip_low: float = 3e-4, clip_high: float = 4e-4) -> Tensor:
    """GSPO, arXiv 2507.18071, equations 5 (objective) and 7 (ratio).

    s_i = (pi(y_i) / pi_old(y_i))^(1/|y_i|) = exp(mean_t d_t), one clipped surrogate a member, mean over members.

    A member without decisions has no ratio: it adds nothing and still counts in B.
    """
    advantages = z_score(given)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        if not positions:
            continue
        mean_gap = sum(log_prob[b, t] - given.old_log_prob[b, t] for t in positions) / len(positions)
        total = total - clipped(torch.exp(mean_gap), advantage, clip_low, clip_high)
    return total / len(advantages)


# As GSPO, the advantage being one number a member: s = 0.866 (dead at A = -1) and 0.9378887 (A = 1).
@oracle(0.01236225446, [[0.0] * 3, [0.0] * 3, [-0.06252591518] * 3, [0.0] * 3, [0.0] * 3])
def gspo_token(log_prob: Tensor, given: Given, *, clip_low: float = 3e-4, clip_high: float = 4e-4) -> Tensor:
    """GSPO-token, arXiv 2507.18071, equations 13 and 14.

    s_it = sg(s_i) pi(y_t) / sg(pi(y_t)): the value of GSPO's ratio, the gradient of one decision; clipped per decision,
    mean over decisions, then over members.

    With one advantage a member this has GSPO's value and gradient.
    """
    advantages = z_score(given)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        gaps = [float(log_prob[b, t].detach() - given.old_log_prob[b, t]) for t in positions]
        for t in positions:
            level = math.exp(math.fsum(gaps) / len(gaps))
            ratio = level * torch.exp(log_prob[b, t] - log_prob[b, t].detach())
            total = total - clipped(ratio, advantage, clip_low, clip_high) / len(positions)
    return total / len(advantages)


# Member 0: 2 * -0.998 (dead); member 2: 3 * 0.9378887. Loss (1.996 - 2.8136661) / 5; gradient -0.9378887 / 5 each.
@oracle(-0.1635332366, [[0.0] * 3, [0.0] * 3, [-0.1875777455] * 3, [0.0] * 3, [0.0] * 3])
def luspo(log_prob: Tensor, given: Given, *, clip_low: float = 2e-3, clip_high: float = 2.5e-3) -> Tensor:
    """LUSPO, arXiv 2602.05261: GSPO with each member's surrogate multiplied by its length.

    J = 1/G sum_i |y_i| min(s_i A_i, clip(s_i) A_i), s_i as in GSPO (arXiv 2507.18071, equation 7); the clip is that of
    its section 5.1.

    The mean over members of length times surrogate: what a sum over decisions of a constant gives.
    """
    advantages = z_score(given)
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        positions = decisions(given, b)
        if not positions:
            continue
        mean_gap = sum(log_prob[b, t] - given.old_log_prob[b, t] for t in positions) / len(positions)
        total = total - len(positions) * clipped(torch.exp(mean_gap), advantage, clip_low, clip_high)
    return total / len(advantages)


# Member 0 (A = -1): W = 0.75, ln phi = 3 ln 0.75 + 2 * 0.25 = -0.3630462, phi = 0.6955543, S = 0.6955543 * 2.2876821 =
# 1.5912071. Member 2 (A = 1): W = 0.825, ln phi = 2 ln 0.825 + 3 * 0.175 = 0.1402562, phi = 1.1505686, S = -1.1505686 *
# 3.1923719 = -3.6730427. Loss (3.6730427 - 1.5912071) / 8; gradients 0.6955543 / 8, -1.1505686 / 8.
@oracle(0.2602294551, [[0.08694428576, 0.08694428576, 0.0], [0.0] * 3, [-0.1438210692] * 3, [0.0] * 3, [0.0] * 3])
def vespo(
    log_prob: Tensor,
    given: Given,
    *,
    k_pos: float = 2.0,
    lambda_pos: float = 3.0,
    k_neg: float = 3.0,
    lambda_neg: float = 2.0,
    limit: float = 20.0,
) -> Tensor:
    """VESPO, arXiv 2602.10693, section 3.4: L = -E[ sg(phi(W)) A log pi ], phi(W) = W^k exp(lambda (1 - W)), W = pi(y)
    / mu(y) of the whole member.

    (k, lambda) = (2, 3) where A >= 0 and (3, 2) elsewhere; ln W clamped to +-20, as its code. Its runs: z-scores and a
    mean over all decisions.

    The weight is a constant; every decision of a member carries it.
    """
    total = zero(log_prob)
    for b, advantage in enumerate(z_score(given)):
        positions = decisions(given, b)
        gap = math.fsum(float(log_prob[b, t].detach() - given.old_log_prob[b, t]) for t in positions)
        gap = min(max(gap, -limit), limit)
        k, decay = (k_pos, lambda_pos) if advantage >= 0 else (k_neg, lambda_neg)
        weight = math.exp(k * gap + decay * (1.0 - math.exp(gap)))
        for t in positions:
            total = total - weight * advantage * log_prob[b, t]
    return total / num_decisions(given)
