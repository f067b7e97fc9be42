"""Conversations over an engine that only completes a prompt: every turn is a new prompt, the conversation so far.

The log-probs of the full distribution and the other fields are then computed by the trainer's own model, the engine's
are the behaviour policy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import final

import torch

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.decode import check_finite
from groupwise.causal_lm.sampler import Completions, Continue, GroupBatch, check


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
    """A request for one completion.

    Args:
        context: the conversation so far.
        num_tokens: how many may follow at most.
        seed: for the draws.
        place: number of the prompt, and of the member in its group.
        num_before: tokens of the member in the context.
    """

    context: list[int]
    num_tokens: int
    seed: int
    place: tuple[int, int]
    num_before: int


@dataclass
class _Member:
    tokens: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    log_prob: list[float] = field(default_factory=list)
    truncated: bool = False


def converse(
    complete: Callable[[list[Request]], list[Turn]], backbone: Backbone, batch: GroupBatch, *, rescores: bool = True
) -> Completions:
    """Samples the groups turn by turn.

    Args:
        complete: gives a turn for each request.
        backbone: the model that rescores.
        batch: the groups, with settings and seeds.
        rescores: whether the model computes the log-probs; otherwise they are NaN, for the caller to compute.
    """
    check(backbone, batch.prompts, batch.group_size, batch.settings, batch.seeds)
    owner = [list(prompt) for prompt in batch.prompts for _ in range(batch.group_size)]
    members = [_Member() for _ in owner]
    settings, limit = batch.settings, batch.settings.max_new_tokens
    active = list(range(len(owner)))
    while active:
        requests = []
        for m in active:
            num_before = len(members[m].tokens)
            num_tokens = min(limit - num_before, settings.max_turn_tokens or limit)
            requests.append(
                Request(
                    owner[m] + members[m].tokens,
                    num_tokens,
                    batch.seeds[m] + num_before,
                    divmod(m, batch.group_size),
                    num_before,
                )
            )
        active = [
            m
            for m, turn in zip(active, complete(requests), strict=True)
            if _goes_on(m, members[m], turn, limit, batch.continue_with)
        ]
        if batch.progress is not None:
            batch.progress(len(owner) - len(active), len(owner))
    return _completions(backbone, owner, members, batch, rescores)


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
    environment_tokens = [int(token) for token in answer][:room]
    member.tokens += environment_tokens
    member.mask += [False] * len(environment_tokens)
    member.log_prob += [0.0] * len(environment_tokens)
    member.truncated = len(member.tokens) >= limit
    return not member.truncated


def _completions(
    backbone: Backbone, owner: list[list[int]], members: list[_Member], batch: GroupBatch, rescores: bool
) -> Completions:
    longest = max(len(member.tokens) for member in members)
    device = backbone.trained_on

    def padded(rows: Iterable[list], fill: object, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([row + [fill] * (longest - len(row)) for row in rows], dtype=dtype, device=device)

    tokens, mask = (
        padded((m.tokens for m in members), 0, torch.long),
        padded((m.mask for m in members), False, torch.bool),
    )
    if rescores:
        with backbone.evaluating():
            fields = scoring.score(
                backbone, owner, tokens, mask, batch.requires | {"log_prob"}, temperature=batch.settings.temperature
            )
        check_finite(fields["log_prob"], range(len(members)), batch.group_size)
    else:
        # Of the dtype in which the head computes log-probs.
        dtype = torch.promote_types(backbone.head.weight.dtype, torch.float32)
        fields = {"log_prob": torch.zeros(mask.shape, dtype=dtype, device=device).masked_fill(mask, math.nan)}
    # A greedy engine's own log-probs are those of a distribution that has only one token.
    behaviour = None if batch.settings.greedy else padded((m.log_prob for m in members), 0.0, fields["log_prob"].dtype)
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
