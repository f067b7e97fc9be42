"""Twelve methods as their papers write them, on members of different lengths: what a replayed optimiser step minimises.

Nothing is padded and nothing is masked: a member is the list of its decisions alone. `lp`, `old`, `reference` and
`surprise` are vectors over them, `r = exp(lp - old)`. A group whose rewards are all equal has advantage 0; no standard
deviation is taken as less than 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Answer:
    """One member of an update: its decisions, scored.

    `lp` is live; `old` is of the policy that the batch began with, `reference` of the frozen one, `kept` the mass that
    top-p left (so that the sampler's log-prob is `old - ln(kept)`), `entropy` live.
    """

    lp: Tensor
    old: Tensor
    reference: Tensor
    kept: Tensor
    entropy: Tensor
    advantage: float

    @property
    def n(self) -> int:
        """Decisions."""
        return len(self.lp)

    @property
    def ratio(self) -> Tensor:
        """`r_t`."""
        return torch.exp(self.lp - self.old)


def z_score(rewards: Sequence[float]) -> list[float]:
    """Of one group; arXiv 2402.03300, section 4.1.2, with the unbiased standard deviation."""
    if len(set(rewards)) == 1:
        return [0.0] * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))
    return [(reward - mean) / max(deviation, 1e-6) for reward in rewards]


def centred(rewards: Sequence[float]) -> list[float]:
    """Of one group; arXiv 2503.20783, equation 1."""
    mean = math.fsum(rewards) / len(rewards)
    return [0.0 if len(set(rewards)) == 1 else reward - mean for reward in rewards]


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """Of one group: each against the mean of the others; arXiv 2402.14740, equation 5."""
    if len(set(rewards)) == 1:
        return [0.0] * len(rewards)
    others = [(math.fsum(rewards) - reward) / (len(rewards) - 1) for reward in rewards]
    return [reward - other for reward, other in zip(rewards, others, strict=True)]


def whiten(rewards: Sequence[float]) -> list[float]:
    """Of the whole batch; arXiv 2501.03262, section 3."""
    mean = math.fsum(rewards) / len(rewards)
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))
    return [(reward - mean) / max(deviation, 1e-6) for reward in rewards]


def pessimistic(ratio: Tensor, advantage: float, low: float, high: float) -> Tensor:
    """`min(r A, clip(r, 1 - low, 1 + high) A)`; arXiv 1707.06347, equation 7."""
    return torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


def token_clip(update: Sequence[Answer], low: float = 0.2, high: float = 0.2) -> list[Tensor]:
    """PPO's clip of every decision: GRPO, Dr. GRPO, REINFORCE++ and (higher above) DAPO."""
    return [pessimistic(answer.ratio, answer.advantage, low, high) for answer in update]


def sequence_clip(update: Sequence[Answer]) -> list[Tensor]:
    """GSPO, arXiv 2507.18071, equations 5 and 7: the geometric mean of a member's ratios, once for each of its
    decisions.
    """
    ratios = [torch.exp((answer.lp - answer.old).mean()) for answer in update]
    return [
        pessimistic(ratio, answer.advantage, 3e-4, 4e-4).expand(answer.n)
        for ratio, answer in zip(ratios, update, strict=True)
    ]


def geometric(update: Sequence[Answer]) -> list[Tensor]:
    """GMPO, arXiv 2507.20673, equation 4: log-ratios are held at 0.4 on the side the advantage pushes to, then
    averaged.
    """
    surrogates = []
    for answer in update:
        drift = answer.lp - answer.old
        held = drift.clamp(max=0.4) if answer.advantage > 0 else drift.clamp(min=-0.4)
        surrogates.append((torch.exp(held.mean()) * answer.advantage).expand(answer.n))
    return surrogates


def score_function(update: Sequence[Answer]) -> list[Tensor]:
    """CISPO, arXiv 2506.13585, equations 4 and 5: the ratio, at most 5, is a constant."""
    return [answer.ratio.detach().clamp(max=5.0) * answer.advantage * answer.lp for answer in update]


def reinforce(update: Sequence[Answer]) -> list[Tensor]:
    """RLOO, arXiv 2402.14740, equation 4."""
    return [answer.advantage * answer.lp for answer in update]


def averaged_clip(update: Sequence[Answer]) -> list[Tensor]:
    """Source 000, innovation 2.1: `r'_t = 0.9 r_t + 0.1 r'_{t-1}` in the place of the ratio."""
    surrogates = []
    for answer in update:
        smoothed = [answer.ratio[0]]
        for ratio in answer.ratio[1:]:
            smoothed.append(0.9 * ratio + 0.1 * smoothed[-1])
        surrogates.append(pessimistic(torch.stack(smoothed), answer.advantage, 0.2, 0.2))
    return surrogates


def covariance_penalty(update: Sequence[Answer], share: float = 0.1) -> list[Tensor]:
    """KL-Cov, arXiv 2505.22617, section 4.2; one decision in ten is held, where the paper holds one in five thousand.

    Of decisions that tie for the last place, one is as good as another only where both are the same token after the
    same text. Between others the trainer draws, and this raises.
    """
    lp = torch.cat([answer.lp.detach() for answer in update])
    advantage = torch.cat([torch.full_like(answer.old, answer.advantage) for answer in update])
    covariance, order = ((lp - lp.mean()) * (advantage - advantage.mean())).sort(descending=True)
    number = max(1, math.floor(share * len(lp)))
    last, next_ = order[number - 1], order[number]
    if covariance[number - 1] - covariance[number] < 1e-9 and abs(lp[last] - lp[next_]) > 1e-9:
        raise ValueError(
            "decisions tie for the last place that KL-Cov holds, and which of them it is was drawn; replay a run of"
            " another seed"
        )
    held = torch.zeros_like(lp).index_fill(0, order[:number], 1.0)
    parts = held.split([answer.n for answer in update])
    return [
        answer.ratio * answer.advantage - part * (answer.lp - answer.old).abs()
        for answer, part in zip(update, parts, strict=True)
    ]


def soft_gate(update: Sequence[Answer]) -> list[Tensor]:
    """SAPO, arXiv 2511.20347, section 3."""
    temperatures = [1.0 if answer.advantage > 0 else 1.05 for answer in update]
    return [
        4 / tau * torch.sigmoid(tau * (answer.ratio - 1)) * answer.advantage
        for tau, answer in zip(temperatures, update, strict=True)
    ]


def by_surprise(update: Sequence[Answer]) -> list[Tensor]:
    """Source 000, innovation 2.2: what the clip leaves is shared out by a softmax of `|lp|`, whose mean is one."""
    credits = [answer.n * torch.softmax(answer.lp.detach().abs(), 0) for answer in update]
    return [credit * part for credit, part in zip(credits, token_clip(update), strict=True)]


def member_mean(update: Sequence[Answer]) -> list[float]:
    """The weight of each member's decisions: mean over members of means over decisions."""
    return [1 / (len(update) * answer.n) for answer in update]


def member_sum(update: Sequence[Answer]) -> list[float]:
    """Mean over members of sums over decisions."""
    return [1 / len(update)] * len(update)


def token_mean(update: Sequence[Answer]) -> list[float]:
    """Mean over all decisions."""
    return [1 / sum(answer.n for answer in update)] * len(update)


def fixed_length(update: Sequence[Answer]) -> list[float]:
    """Dr. GRPO, section 3.2: divided by members and by a length that is no answer's."""
    return [1 / (len(update) * 1024)] * len(update)


@dataclass(frozen=True)
class Method:
    """A method: how rewards become advantages, what a decision adds, what it weighs, and where the reference is felt.

    `in_reward` is the coefficient of `sum_t (old - reference)` taken from a member's reward; `in_loss` that of k3
    (arXiv 2402.03300, equation 4) in the loss, which the runs add where the method has neither.
    """

    advantage: Callable[[Sequence[float]], list[float]]
    surrogate: Callable[[Sequence[Answer]], list[Tensor]]
    weight: Callable[[Sequence[Answer]], list[float]]
    in_reward: float = 0.0
    in_loss: float = 0.04
    whole_batch: bool = False
    truncated_weight: bool = False


METHODS = {
    "grpo": Method(z_score, token_clip, member_mean),
    "dapo+tis": Method(z_score, lambda update: token_clip(update, 0.2, 0.28), token_mean, truncated_weight=True),
    "dr_grpo": Method(centred, token_clip, fixed_length),
    "gspo": Method(z_score, sequence_clip, member_mean),
    "gmpo": Method(z_score, geometric, member_mean),
    "cispo": Method(z_score, score_function, token_mean),
    "rloo": Method(leave_one_out, reinforce, member_sum, in_reward=0.05, in_loss=0.0),
    "reinforce_pp": Method(whiten, token_clip, token_mean, in_reward=0.01, in_loss=0.0, whole_batch=True),
    "ema": Method(z_score, averaged_clip, token_mean),
    "kl_cov": Method(z_score, covariance_penalty, token_mean),
    "sapo": Method(z_score, soft_gate, member_mean),
    "gradient_adaptive": Method(z_score, by_surprise, token_mean),
}


def loss(method: Method, update: Sequence[Answer], entropy: float) -> Tensor:
    """`-sum w k S + beta sum w (e^x - x - 1) - lambda sum w H`, with `x = reference - lp`; `k = min(old / sampler, 2) =
    min(mass kept, 2)`.
    """
    total = torch.zeros((), dtype=torch.float64)
    for answer, surrogate, weight in zip(update, method.surrogate(update), method.weight(update), strict=True):
        correction = answer.kept.clamp(max=2.0) if method.truncated_weight else torch.ones_like(answer.kept)
        gap = answer.reference - answer.lp
        divergence = torch.exp(gap) - gap - 1
        total = (
            total
            - weight * (correction * surrogate).sum()
            + weight * method.in_loss * divergence.sum()
            - weight * entropy * answer.entropy.sum()
        )
    return total
