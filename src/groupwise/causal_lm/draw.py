"""Draws of one token a member, by one uniform number a token: a member's tokens depend on its own seed and nothing
else.

The uniform of decision t of a member with seed s is a counter-based hash of (s, t) (splitmix64), so no generator is
kept, and neighbours, order and batch size cannot reach it. The token is the first whose cumulative probability, in the
order of token ids, exceeds the uniform.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class DistributionError(RuntimeError):
    """The model gave no distribution to draw from: its numbers are NaN or infinite.

    Args:
        num_broken, num_members: how many, and of how many.
        place: of the first one: its prompt in the batch, and its number in the group, from 0.
        token: of its completion, from 0.
    """

    def __init__(self, num_broken: int, num_members: int, place: tuple[int, int], token: int) -> None:
        prompt, member = place
        super().__init__(
            f"the model's distribution over tokens is not finite for {num_broken} of {num_members} members (first:"
            f" prompt {prompt} of the batch, member {member}, token {token}, all counted from 0): a weight is NaN or"
            " infinite, or a number overflows on the way. After some training, go on from an earlier checkpoint with a"
            " lower optimiser.learning_rate, or with train.max_grad_norm = 1.0; with bfloat16 or float16 weights,"
            " write dtype = float32; before any training, the model folder is damaged"
        )


def check_finite(log_prob: Tensor, members: Sequence[int], group_size: int) -> None:
    """Refuses log-probs that are not finite, naming the first such member.

    Args:
        log_prob: ``[B, T]`` nats.
        members: the number of each row's member in the batch, prompt by prompt.
        group_size: members a prompt.

    Raises:
        DistributionError: there is one.
    """
    broken = ~log_prob.isfinite()
    rows = broken.any(1).nonzero().squeeze(1).tolist()
    if rows:
        first_row = min(rows, key=lambda row: members[row])
        raise DistributionError(
            len(rows), len(log_prob), divmod(members[first_row], group_size), int(broken[first_row].int().argmax())
        )


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniforms(seeds: Sequence[int], num: int) -> Tensor:
    """Computes ``[B, num]`` fp64 uniforms strictly between 0 and 1; row b is a function of ``seeds[b]``.

    Args:
        seeds: one integer a member; taken modulo 2^64.
        num: how many each.

    Example:
        >>> bool((uniforms([3, 5], 4)[1] == uniforms([5], 9)[0, :4]).all())
        True

    Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014 (splitmix64).
    """
    start = _mix(np.array([int(seed) % 2**64 for seed in seeds], dtype=np.uint64).reshape(-1, 1) + _GOLDEN)
    steps = np.arange(1, num + 1, dtype=np.uint64) * _GOLDEN
    # 48 bits and a half: strictly inside (0, 1) in fp64 also after multiplying with a total mass that is one ulp from
    # 1.
    return torch.from_numpy(((_mix(start + steps) >> np.uint64(16)).astype(np.float64) + 0.5) * 2.0**-48)


def truncation_mask(log_prob: Tensor, top_k: int, top_p: float) -> Tensor | None:
    """Marks the tokens that top-k, then top-p on the rest of top-k, leave: ``[B, V]`` bool; ``None`` when all are left.

    Args:
        log_prob: ``[B, V]`` log-probs, nats.
        top_k: number of most likely tokens, 0 for all.
        top_p: mass of the smallest set of most likely tokens, 1 for all.

    Example:
        >>> truncation_mask(torch.tensor([[0.5, 0.3, 0.2]]).log(), 0, 0.7).tolist()
        [[True, True, False]]

    The most likely token is always kept.
    """
    vocabulary = log_prob.shape[1]
    if (top_k == 0 or top_k >= vocabulary) and top_p >= 1:
        return None
    width = min(top_k, vocabulary) if top_k else vocabulary
    values, order = torch.topk(log_prob, width, dim=1)
    keep = torch.ones_like(values, dtype=torch.bool)
    if top_p < 1:
        p = torch.softmax(values.double(), dim=1)
        keep = p.cumsum(1) - p < top_p
    return torch.zeros_like(log_prob, dtype=torch.bool).scatter_(1, order, keep)


def draw(probability: Tensor, uniform: Tensor) -> Tensor:
    """Draws token ids ``[B]``: the first index whose cumulative mass exceeds ``uniform`` of the total.

    Args:
        probability: ``[B, V]`` non-negative masses, not all zero; they need not sum to 1.
        uniform: ``[B]`` in (0, 1).

    Example:
        >>> draw(torch.tensor([[0.25, 0.0, 0.75]]), torch.tensor([0.25])).item()
        2

    A token of mass 0 is never drawn. Masses that are NaN give some token, so that no index is out of range; who keeps
    its log-prob sees it.
    """
    # fp64: an fp32 running sum over 150,000 tokens would be off by more than the rarest of them weigh.
    cumulative = probability.cumsum(1, dtype=torch.float64)
    threshold = cumulative[:, -1:] * uniform.unsqueeze(1)
    return torch.searchsorted(cumulative, threshold, right=True).squeeze(1).clamp_max_(probability.shape[1] - 1)
