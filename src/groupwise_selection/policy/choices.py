"""Ordered choices under a pointer network: drawn from it, or scored again by teacher forcing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise_selection.policy.network import Encoded, PointerNetwork, Pools

STOP, NOTHING = -1, -2
"""The entries of `picks` for the decision to end, and for positions after it. Entries of 0 and above are places in the
query's pool.
"""


@final
@dataclass(frozen=True)
class Choices:
    """Ordered choices with their distributions.

    Args:
        picks: `[B, T]` places in the pool, `STOP`, `NOTHING`.
        mask: `[B, T]` bool, true where there was a decision.
        log_probs: `[B, T, N]` nats over the pool at each decision (`N + 1` with the decision to end), minus infinity
            for examples that could not be chosen.
    """

    picks: Tensor
    mask: Tensor
    log_probs: Tensor

    @property
    def lengths(self) -> Tensor:
        """The number of demonstrations of each member, `[B]`."""
        return (self.picks >= 0).sum(1)

    def first(self, num_decisions: Tensor) -> Choices:
        """Cuts each member to its first `num_decisions [B]` decisions, as a draw of that many would have given them: a
        pick depends only on the picks before it.
        """
        within = torch.arange(self.picks.shape[1], device=self.picks.device) < num_decisions[:, None]
        return Choices(self.picks.masked_fill(~within, NOTHING), self.mask & within, self.log_probs)


def draw_choices(
    network: PointerNetwork,
    encoded: Encoded,
    shots: int,
    uniform: Tensor | None,
    temperature: Tensor,
    *,
    least: int = 1,
    force: Tensor | None = None,
) -> Choices:
    """Draws ordered choices of at most `shots` examples, without replacement.

    Args:
        network: the policy.
        encoded: one pool a member.
        shots: highest number of picks, `T`.
        uniform: `[B, T]` fp64 in [0, 1), the random numbers of the draw; `None` takes the most probable, of equals the
            first in the pool, and ends where ending is more probable than not.
        temperature: `[B]`, divides the logits.
        least: number of picks before picking may end.
        force: `[B, T]` picks to score in place of a draw.

    Raises:
        ConfigError: a probability is NaN.
    """
    size, members = encoded.similarity.shape[1], len(encoded.similarity)
    state = network.start(encoded)
    chosen = torch.zeros_like(encoded.valid)
    ended = torch.zeros(members, dtype=torch.bool, device=state.device)
    picks, masks, step_log_probs = [], [], []
    for position in range(shots):
        logits = network.logits(encoded, state, chosen)
        if network.stops and position < least:
            logits = torch.cat([logits[:, :-1], torch.full_like(logits[:, -1:], float("-inf"))], 1)
        log_probs = (logits / temperature[:, None].to(logits)).log_softmax(1)
        if force is not None:
            picked = torch.where(force[:, position] == STOP, size, force[:, position])
        elif uniform is None:
            picked = log_probs[:, :size].argmax(1)
            if network.stops:
                # Ending competes with the total probability of picking, not with single examples.
                picked = torch.where(log_probs[:, size] > log_probs[:, :size].logsumexp(1), size, picked)
        else:
            picked = _inverse(log_probs, uniform[:, position])
        if force is not None:
            ended = ended | (force[:, position] == NOTHING)
        masks.append(~ended)
        pick = torch.where(ended, NOTHING, torch.where(picked == size, STOP, picked))
        picks.append(pick)
        step_log_probs.append(log_probs)
        ended = ended | (pick < 0)
        if position + 1 < shots:
            pool_place = pick.clamp(min=0)
            is_pick = torch.arange(size, device=chosen.device) == pool_place[:, None]
            chosen = chosen | (is_pick & ~ended[:, None])
            state = network.advance(encoded, state, pool_place)
    mask, log_probs = torch.stack(masks, 1), torch.stack(step_log_probs, 1)
    if bool((log_probs.isnan().any(2) & mask).any()):
        raise ConfigError(
            "model: the policy gives NaN or infinity for an example; its weights are damaged, or its training has"
            " diverged (lower optimiser.learning_rate)"
        )
    return Choices(torch.stack(picks, 1), mask, log_probs)


def sample_choices(
    network: PointerNetwork,
    pools: Pools,
    shots: int,
    temperature: float,
    generators: Sequence[torch.Generator],
    *,
    greedy: bool = False,
    num_shots: Sequence[int] | None = None,
) -> Choices:
    """Draws a group of choices for each query; a member's draw depends on its generator alone.

    Args:
        network: the policy.
        pools: one pool a query, each encoded once.
        shots: highest number of picks.
        temperature: divides the logits.
        generators: one a member, group by group.
        greedy: take the most probable picks in place of a draw.
        num_shots: number of picks of each query's members; unset takes `shots`.
    """
    device, num_queries = pools.query.device, len(pools.query)
    group = torch.arange(num_queries, device=device).repeat_interleave(len(generators) // num_queries)
    uniform = torch.stack([torch.rand(shots, generator=generator, dtype=torch.float64) for generator in generators])
    temperatures = torch.full((len(group),), temperature, dtype=torch.float64, device=device)
    encoded = network.encode(pools).of(group)
    choices = draw_choices(network, encoded, shots, None if greedy else uniform.to(device), temperatures)
    return choices if num_shots is None else choices.first(torch.tensor(num_shots, device=device)[group])


def _inverse(log_probs: Tensor, uniform: Tensor) -> Tensor:
    """Returns the first place whose cumulative probability exceeds `uniform`; a place of probability 0 is never
    drawn.
    """
    cumulative = log_probs.double().exp().cumsum(1)
    cumulative = cumulative / cumulative[:, -1:]
    return (cumulative <= uniform[:, None]).sum(1).clamp(max=log_probs.shape[1] - 1)


def scored_fields(choices: Choices, requires: Iterable[str], reference: Tensor | None = None) -> dict[str, Tensor]:
    """Computes fields of `Scored`, `[B, T]` each, with gradient; 0 where there was no decision.

    `log_prob` of the pick; `entropy = -sum p log p`; `score_norm = |onehot - p|`, the norm of the log-prob's gradient
    by the logits; `exact_divergence = sum p (log p - log p_ref)` over what can still be chosen.

    Args:
        choices: choices with the distributions of the live policy.
        requires: names of fields in addition to the log-prob.
        reference: `[B, T, N]` nats, the reference's distributions at the same decisions.
    """
    log_probs, requires = choices.log_probs, frozenset(requires)
    last = log_probs.shape[2] - 1
    place = torch.where(choices.picks == STOP, last, choices.picks).clamp(min=0)
    # An example that cannot be chosen has log-prob minus infinity and is masked first: 0 times infinity is NaN.
    possible = log_probs > float("-inf")
    finite = log_probs.masked_fill(~possible, 0.0)
    probability = log_probs.exp()
    fields = {"log_prob": finite.gather(2, place[..., None])[..., 0]}
    if "entropy" in requires:
        fields["entropy"] = -(probability * finite).sum(2)
    if "score_norm" in requires:
        pick_probability = probability.gather(2, place[..., None])[..., 0]
        fields["score_norm"] = (1 - 2 * pick_probability + probability.square().sum(2)).clamp(min=0).sqrt().detach()
    if "exact_divergence" in requires:
        assert reference is not None, "with_reference comes first"
        fields["exact_divergence"] = (probability * (finite - reference.masked_fill(~possible, 0.0))).sum(2)
    return {name: value.masked_fill(~choices.mask, 0.0) for name, value in fields.items()}
