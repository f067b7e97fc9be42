"""What every oracle is given, and the few pieces of arithmetic they share.

An oracle is a slow transcription of a published formula: Python loops over members and decisions, scalar fp64 tensors,
branches instead of masks. It imports nothing of the library it judges. Notation as in the library: ``d = lp - lp_old``,
``r = exp(d)``, ``A`` advantage, ``n`` valid decisions of a member, ``N`` valid decisions of the batch, ``B`` members.
A flat group (all rewards equal) has advantage exactly 0 and still counts in every divisor, unless the method drops it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

# Sums of log-ratios over a member, and log-ratios against a reference that are exponentiated twice, are clamped here.
LOG_CLAMP = 80.0


@dataclass(frozen=True)
class Given:
    """Everything a loss depends on besides the live log-probabilities. Lists are one entry a member."""

    old_log_prob: Tensor
    mask: Tensor
    group: list[int]
    rewards: list[float]
    reference_log_prob: Tensor | None = None
    behaviour_log_prob: Tensor | None = None
    entropy: Tensor | None = None
    score_norm: Tensor | None = None
    second: list[float] | None = None
    """A second reward of weight 1/2, for methods that treat rewards apart."""
    lot: Tensor | None = None
    """Uniform random numbers, one a decision, for methods that draw."""
    exact_divergence: Tensor | None = None
    step_size: Tensor | None = None
    """dt of a transition."""
    noise: Tensor | None = None
    """sigma sqrt(dt) of a transition."""
    drift: Tensor | None = None
    """|mu - mu_old|^2 / (2 sigma^2 dt) of a transition, the mean over dimensions."""
    old_divergence: Tensor | None = None
    """The KL of a transition from the one that sampled; apart from `drift`, so that a threshold divides them."""
    positive_error: Tensor | None = None
    """The error of the mirrored prediction that learns, of a noised copy."""
    negative_error: Tensor | None = None
    """The error of the one that unlearns."""


@dataclass(frozen=True)
class Hand:
    """A case worked out by hand: inputs, the method's parameters for it, the value and the gradient by log_prob."""

    value: float
    gradient: list[list[float]]
    parameters: dict[str, float] = field(default_factory=dict)
    entropy_gradient: list[list[float]] | None = None
    exact_gradient: list[list[float]] | None = None
    positive_gradient: list[list[float]] | None = None
    negative_gradient: list[list[float]] | None = None


@dataclass(frozen=True)
class Oracle:
    """The loss of a method, and its case by hand."""

    loss: Callable[..., Tensor]
    hand: Hand


ORACLES: dict[str, Oracle] = {}
"""The oracles by the names of their methods, of the files that were imported."""


def oracle(value: float, gradient: list[list[float]], *more: Any, **others: Any) -> Callable[[Any], Any]:
    """Enters a loss into `ORACLES` under its name, with the numbers of its `Hand`."""

    def enter(loss: Any) -> Any:
        ORACLES[loss.__name__] = Oracle(loss, Hand(value, gradient, *more, **others))
        return loss

    return enter


def hand_inputs() -> tuple[Tensor, Given]:
    """The one small batch of all hand-worked cases.

    Group 0: rewards 0, 1, 2 (mean 1, unbiased std 1, so z-scores -1, 0, 1). Group 1: rewards 1, 1 (flat).
    Ratios: member 0 (1.5, 0.5), member 1 (2), member 2 (1.1, 1.5, 0.5), members 3 and 4 (1). So B = 5, N = 8.
    lp_old = -1 everywhere, so |lp| = 1 - ln r and exp(|lp|) = e / r. The reference is the policy itself except on the
    first decision of member 0, where lp_ref - lp = ln 2. Entropy 0.5 everywhere.
    Transitions: sigma sqrt(dt) = 2; dt = 1/2, of member 2 1/4; drift ln 2 on the second decision of member 0, elsewhere
    0. Exact divergence 1/4. Old divergence 1/4, 0 on the first decision of member 2. Errors of mirrored predictions 1/2
    and 1. A second reward 1, 0, 2 | 0, 1 (z-scores 0, -1, 1 and -+0.7071068). Lots are 0.5.
    """
    ratios = [[1.5, 0.5], [2.0], [1.1, 1.5, 0.5], [1.0], [1.0]]
    old = torch.full((5, 3), -1.0, dtype=torch.float64)
    mask = torch.zeros(5, 3, dtype=torch.bool)
    log_prob = old.clone()
    for b, row in enumerate(ratios):
        for t, ratio in enumerate(row):
            mask[b, t] = True
            log_prob[b, t] += math.log(ratio)
    reference = log_prob.clone()
    reference[0, 0] += math.log(2.0)
    step_size, drift = torch.full_like(old, 0.5), torch.zeros_like(old)
    step_size[2], drift[0, 1] = 0.25, math.log(2.0)
    old_divergence = torch.full_like(old, 0.25)
    old_divergence[2, 0] = 0.0
    given = Given(
        old,
        mask,
        [0, 0, 0, 1, 1],
        [0.0, 1.0, 2.0, 1.0, 1.0],
        reference,
        entropy=torch.full_like(old, 0.5),
        second=[1.0, 0.0, 2.0, 0.0, 1.0],
        lot=torch.full_like(old, 0.5),
        exact_divergence=torch.full_like(old, 0.25),
        step_size=step_size,
        noise=torch.full_like(old, 2.0),
        drift=drift,
        old_divergence=old_divergence,
        positive_error=torch.full_like(old, 0.5),
        negative_error=torch.full_like(old, 1.0),
    )
    return log_prob, given


def decisions(given: Given, b: int) -> list[int]:
    """Positions of member b that carry a decision, in order."""
    return [t for t in range(given.mask.shape[1]) if bool(given.mask[b, t])]


def num_decisions(given: Given) -> int:
    """N: valid decisions of the whole batch."""
    return sum(len(decisions(given, b)) for b in range(len(given.group)))


def group_of(given: Given, b: int) -> list[int]:
    """The members that share the prompt of member b, itself included."""
    return [i for i in range(len(given.group)) if given.group[i] == given.group[b]]


def is_flat(given: Given, b: int) -> bool:
    """Whether all rewards of the group of member b are equal."""
    return len({given.rewards[i] for i in group_of(given, b)}) == 1


def z_score(given: Given, ddof: int = 1) -> list[float]:
    """A_b = (R_b - mean) / std inside the group; arXiv 2402.03300, section 4.1.2. Flat: 0."""
    advantages = []
    for b in range(len(given.group)):
        if is_flat(given, b):
            advantages.append(0.0)
            continue
        rewards = [given.rewards[i] for i in group_of(given, b)]
        mean = math.fsum(rewards) / len(rewards)
        variance = math.fsum((r - mean) ** 2 for r in rewards) / (len(rewards) - ddof)
        advantages.append((given.rewards[b] - mean) / math.sqrt(variance))
    return advantages


def group_mean(given: Given, b: int) -> float:
    """The mean reward of the group of member b."""
    rewards = [given.rewards[i] for i in group_of(given, b)]
    return math.fsum(rewards) / len(rewards)


def deviation(values: list[float], ddof: int = 1) -> float:
    """The standard deviation."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - ddof))


def covariances(log_prob: Tensor, given: Given, advantages: list[float]) -> dict[tuple[int, int], float]:
    """(A - mean A) (lp - mean lp), the means over all decisions of the batch; arXiv 2505.22617, equation 9."""
    places = [(b, t) for b in range(len(given.group)) for t in decisions(given, b)]
    mean_advantage = math.fsum(advantages[b] for b, _ in places) / len(places)
    mean_log_prob = math.fsum(float(log_prob[b, t].detach()) for b, t in places) / len(places)
    return {
        (b, t): (advantages[b] - mean_advantage) * (float(log_prob[b, t].detach()) - mean_log_prob) for b, t in places
    }


def token_clip(log_prob: Tensor, given: Given, advantages: list[float], clip_low: float, clip_high: float) -> Tensor:
    """-1/N sum_bt min(r A, clip(r) A): the surrogate of the methods whose own idea is the advantage."""
    total = zero(log_prob)
    for b, advantage in enumerate(advantages):
        for ratio in ratios_of(log_prob, given, b):
            total = total - clipped(ratio, advantage, clip_low, clip_high)
    return total / num_decisions(given)


def clipped(rho: Tensor, advantage: float, low: float, high: float) -> Tensor:
    """min(rho A, clip(rho, 1 - low, 1 + high) A); arXiv 1707.06347, equation 7. A constant outside the region."""
    value = float(rho.detach())
    bounded = min(max(value, 1.0 - low), 1.0 + high)
    if bounded * advantage < value * advantage:
        return torch.tensor(bounded * advantage, dtype=rho.dtype)
    return rho * advantage


def dual_clipped(rho: Tensor, advantage: float, low: float, high: float, bound: float) -> Tensor:
    """max(min(rho A, clip(rho) A), c A) for A < 0, the clipped surrogate otherwise; arXiv 1912.09729, equation 5."""
    surrogate = clipped(rho, advantage, low, high)
    if advantage < 0 and float(surrogate.detach()) < bound * advantage:
        return torch.tensor(bound * advantage, dtype=rho.dtype)
    return surrogate


def asymmetric_clipped(rho: Tensor, advantage: float, eps_pos: float, eps_neg: float) -> Tensor:
    """The clipped surrogate with eps_pos on both sides where A > 0 and eps_neg elsewhere; innovation 2.6."""
    eps = eps_pos if advantage > 0 else eps_neg
    return clipped(rho, advantage, eps, eps)


def moving_average(ratios: list[Tensor], beta: float) -> list[Tensor]:
    """r'_1 = r_1, r'_t = beta r_t + (1 - beta) r'_{t-1}, gradient through all of it; innovation 2.1."""
    smoothed: list[Tensor] = []
    for ratio in ratios:
        smoothed.append(ratio if not smoothed else beta * ratio + (1.0 - beta) * smoothed[-1])
    return smoothed


def mean_one(raw: list[float]) -> list[float]:
    """Weights scaled so that their mean over one member's decisions is one."""
    total = math.fsum(raw)
    return [len(raw) * value / total for value in raw]


def decay_credit(n: int, gamma: float) -> list[float]:
    """c_t proportional to gamma^(t-1), mean one; innovation 2.5."""
    return mean_one([gamma**t for t in range(n)])


def softmax_credit(signal: list[float], temperature: float) -> list[float]:
    """c_t = n softmax_t(g_t / T) over one member's decisions; innovation 2.2."""
    top = max(signal)
    return mean_one([math.exp((g - top) / temperature) for g in signal])


def gradient_signal(log_prob: Tensor, given: Given, b: int) -> list[float]:
    """g_t of one member: the exact score norm where the case brings one, the surprisal |lp| otherwise."""
    source = log_prob if given.score_norm is None else given.score_norm
    return [abs(float(source[b, t].detach())) for t in decisions(given, b)]


def ratios_of(log_prob: Tensor, given: Given, b: int) -> list[Tensor]:
    """r_t = exp(lp_t - lp_old_t) of one member's decisions."""
    return [torch.exp(log_prob[b, t] - given.old_log_prob[b, t]) for t in decisions(given, b)]


def zero(log_prob: Tensor) -> Tensor:
    """A differentiable 0 to start a sum with, independent of what masked entries hold."""
    return 0.0 * torch.nan_to_num(log_prob).sum()
