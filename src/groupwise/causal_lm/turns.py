"""Conversations over an engine that only completes a prompt: every turn is a new prompt, the conversation so far.

The log-probs of the full distribution and the other fields are then computed by the trainer's own model, the engine's
are the behaviour policy's.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from groupwise.causal_lm import scoring
from groupwise.causal_lm.backbone import Backbone
from groupwise.causal_lm.decode import check_finite
from groupwise.causal_lm.sampler import Completions, Continue, GroupBatch
from groupwise.causal_lm.scoring import ScoringInputs


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


@final
@dataclass
class Member:
    """One completion, turn by turn."""

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
    batch.check(backbone.max_positions)
    members = take_turns(complete, batch)
    device = backbone.trained_on
    tokens, mask = (
        padded((m.tokens for m in members), 0, torch.long, device),
        padded((m.mask for m in members), False, torch.bool, device),
    )
    if rescores:
        owner = [prompt for prompt in batch.prompts for _ in range(batch.group_size)]
        inputs = ScoringInputs(owner, tokens, mask, {*batch.requires, "log_prob"}, batch.settings.temperature)
        with backbone.evaluating():
            fields = scoring.score(backbone, inputs)
        check_finite(fields["log_prob"], range(len(members)), batch.group_size)
    else:
        # NaN of the dtype in which the head computes log-probs.
        dtype = torch.promote_types(backbone.head.weight.dtype, torch.float32)
        fields = {"log_prob": torch.zeros(mask.shape, dtype=dtype, device=device).masked_fill(mask, math.nan)}
    # In greedy mode the engine's log-probs are of a distribution with one token only, so they are left out.
    behaviour = (
        None if batch.settings.greedy else padded((m.log_prob for m in members), 0.0, fields["log_prob"].dtype, device)
    )
    return as_completions(members, tokens, mask, fields, behaviour)


def take_turns(complete: Callable[[list[Request]], list[Turn]], batch: GroupBatch) -> list[Member]:
    """Asks for turns until every member has ended; arguments: see `converse`."""
    owner = [list(prompt) for prompt in batch.prompts for _ in range(batch.group_size)]
    members = [Member() for _ in owner]
    settings, limit = batch.settings, batch.settings.max_new_tokens
    active = list(range(len(owner)))
    while active:
        requests = []
        for m in active:
            num_before = len(members[m].tokens)
            num_tokens = min(limit - num_before, settings.max_turn_tokens or limit)
            place = divmod(m, batch.group_size)
            context, seed = owner[m] + members[m].tokens, batch.seeds[m] + num_before
            requests.append(Request(context, num_tokens, seed, place, num_before))
        active = [
            m
            for m, turn in zip(active, complete(requests), strict=True)
            if _goes_on(m, members[m], turn, limit, batch.continue_with)
        ]
    return members


def _goes_on(number: int, member: Member, turn: Turn, limit: int, continue_with: Continue | None) -> bool:
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


def padded(rows: Iterable[list], fill: object, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """Returns rows of different lengths as one tensor, filled up on the right."""
    rows = list(rows)
    longest = max(map(len, rows))
    return torch.tensor([row + [fill] * (longest - len(row)) for row in rows], dtype=dtype, device=device)


def as_completions(
    members: Sequence[Member], tokens: Tensor, mask: Tensor, fields: Mapping[str, Tensor], behaviour: Tensor | None
) -> Completions:
    """Returns members that have ended as one record.

    Args:
        members: the members.
        tokens, mask: ``[B, T]``, theirs.
        fields: ``{name: [B, T]}``, `log_prob` among them.
        behaviour: ``[B, T]`` log-probs of the distribution that was sampled from, where it is another one.
    """
    return Completions(
        tokens=tokens,
        mask=mask,
        length=torch.tensor([len(m.tokens) for m in members], device=tokens.device),
        log_prob=fields["log_prob"],
        behaviour_log_prob=behaviour,
        entropy=fields.get("entropy"),
        score_norm=fields.get("score_norm"),
        truncated=torch.tensor([m.truncated for m in members], device=tokens.device),
    )
