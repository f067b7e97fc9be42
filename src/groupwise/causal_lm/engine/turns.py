"""Conversations over an engine that only completes a prompt: every turn is a new prompt, the conversation so far.

The log-probs of the full distribution and the other fields are then computed by the trainer's own model, the engine's are the behaviour policy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import final

import torch

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.config import SamplingConfig
from groupwise.causal_lm.sampler import Completions, Continue, Progress


@final
@dataclass(frozen=True)
class Turn:
    """One completion by an engine.

    Args:
        tokens: sampled ids, the one that ended it included.
        log_prob: nats of each under what the engine sampled from.
        ended: by an end token or stop text, not by a limit.
    """

    tokens: list[int]
    log_prob: list[float]
    ended: bool


@final
@dataclass(frozen=True)
class Request:
    """What an engine is asked for: at most `num_tokens` after `context`."""

    context: list[int]
    num_tokens: int
    seed: int


@dataclass
class _Member:
    tokens: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    log_prob: list[float] = field(default_factory=list)
    truncated: bool = False


def converse(
    complete: Callable[[list[Request]], list[Turn]],
    backbone: Backbone,
    prompts: Sequence[Sequence[int]],
    group_size: int,
    settings: SamplingConfig,
    seeds: Sequence[int],
    requires: Iterable[str],
    continue_with: Continue | None,
    progress: Progress | None,
) -> Completions:
    """Sample every member turn by turn; see `groupwise.causal_lm.sampler.sample` for the arguments."""
    owner = [list(prompt) for prompt in prompts for _ in range(group_size)]
    if len(seeds) != len(owner):
        raise ValueError(f"{len(seeds)} seeds for {len(prompts)} prompts x {group_size} members: give {len(owner)}, one a member")
    members = [_Member() for _ in owner]
    limit = settings.max_new_tokens
    active = list(range(len(owner)))
    while active:
        requests = [
            Request(owner[m] + members[m].tokens, min(limit - len(members[m].tokens), settings.max_turn_tokens or limit), seeds[m] + len(members[m].tokens))
            for m in active
        ]
        active = [m for m, turn in zip(active, complete(requests), strict=True) if _goes_on(m, members[m], turn, limit, continue_with)]
        if progress is not None:
            progress(len(owner) - len(active), len(owner))
    return _completions(backbone, owner, members, settings, frozenset(requires))


def _goes_on(number: int, member: _Member, turn: Turn, limit: int, continue_with: Continue | None) -> bool:
    member.tokens += turn.tokens
    member.mask += [True] * len(turn.tokens)
    member.log_prob += turn.log_prob
    if len(member.tokens) >= limit and not turn.ended:
        member.truncated = True
        return False
    answer = None if continue_with is None else continue_with(number, turn.tokens)
    if answer is None:
        member.truncated = not turn.ended
        return False
    room = limit - len(member.tokens)
    given = [int(token) for token in answer][:room]
    member.tokens += given
    member.mask += [False] * len(given)
    member.log_prob += [0.0] * len(given)
    member.truncated = len(member.tokens) >= limit
    return not member.truncated


def _completions(backbone: Backbone, owner: list[list[int]], members: list[_Member], settings: SamplingConfig, requires: frozenset[str]) -> Completions:
    longest = max(len(member.tokens) for member in members)
    device = backbone.device

    def padded(rows: Iterable[list], fill: object, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([row + [fill] * (longest - len(row)) for row in rows], dtype=dtype, device=device)

    tokens, mask = padded((m.tokens for m in members), 0, torch.long), padded((m.mask for m in members), False, torch.bool)
    with backbone.evaluating():
        fields = scoring.score(backbone, owner, tokens, mask, requires | {"log_prob"}, temperature=settings.temperature)
    # A greedy engine's own log-probs are those of a distribution that has only one token.
    behaviour = None if settings.greedy else padded((m.log_prob for m in members), 0.0, fields["log_prob"].dtype)
    return Completions(
        tokens=tokens,
        mask=mask,
        length=torch.tensor([len(m.tokens) for m in members], device=device),
        log_prob=fields["log_prob"],
        behaviour_log_prob=behaviour,
        entropy=fields.get("entropy"),
        score_norm=fields.get("score_norm"),
        truncated=torch.tensor([m.truncated for m in members], device=device),
    )
