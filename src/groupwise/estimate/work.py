"""The work of one training step: calls, tokens, operations and bytes of each part, counted from the model's shape and
the step's sizes.

    layer   F = 2 W + 4 A c      operations a token: W weights of the layer, A width of attention, c mean context
    head    H = 2 V h            operations a token whose log-prob is wanted

    sampling   prompts once each, then every completion token:   (P p + B n) L F + B n H
    scoring    the reference, where the objective has one:       (P p + B n) L F + B n H
    update     forward and twice backward, `updates_per_batch` times over the members that learn;
               once more forward with gradient checkpointing
    communication   the gradient, once an optimiser step; with sharded weights they are gathered twice a pass besides

`P` prompts and `B` members a process, `p` and `n` tokens of a prompt and of a completion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from groupwise.estimate.shape import Shape


@final
@dataclass(frozen=True)
class Step:
    """The sizes of a step, over all processes.

    Args:
        prompts: a step.
        group_size: members of each.
        prompt_tokens: mean tokens of a prompt.
        completion_tokens: mean tokens of a completion.
        longest: tokens of the longest completion: as often the sampler is called.
        updates: passes over the batch.
        minibatches: optimiser steps a pass.
        micro_batch: members in one forward and backward pass; unset takes all.
        learning_share: of the members, those that any gradient comes from; groups with equal rewards give none.
        reference: whether a reference scores every member.
        extra_forward: whether the loss must be known before the gradient (batch scope), which costs a pass without
            gradient.
        checkpointing: whether activations are computed again.

    Example:
        >>> Step(prompts=16, group_size=8, prompt_tokens=22, completion_tokens=9, longest=10).members
        128
    """

    prompts: int
    group_size: int
    prompt_tokens: float
    completion_tokens: float
    longest: int
    updates: int = 1
    minibatches: int = 1
    micro_batch: int | None = None
    learning_share: float = 1.0
    reference: bool = False
    extra_forward: bool = False
    checkpointing: bool = False

    @property
    def members(self) -> int:
        """Members of a step."""
        return self.prompts * self.group_size


@final
@dataclass(frozen=True)
class Work:
    """The work of one part of a step on one process.

    Args:
        calls: times the model is run.
        tokens: tokens that go through the model.
        logits: log-probs of the whole vocabulary that are made, one by one: written tokens times its size.
        bytes_read: weights and cache that must come from memory in calls of few tokens.
    """

    calls: float
    tokens: float
    layer_flops: float
    head_flops: float
    logits: float = 0.0
    bytes_read: float = 0.0

    @property
    def flops(self) -> float:
        """All operations."""
        return self.layer_flops + self.head_flops


def work(shape: Shape, step: Step, num_processes: int = 1, weight_bytes: int = 4) -> dict[str, Work]:
    """The work of each part of a step, on one of several processes.

    Args:
        shape: of the model.
        step: its sizes.
        num_processes: among which the prompts are dealt.
        weight_bytes: of one weight.

    Returns:
        `sampling`, `scoring` and `update`; scoring is left out where there is nothing to score.

    Example:
        >>> small = Shape(hidden=64, intermediate=192, vocabulary=32, layers=3, heads=4, kv_heads=2, head_width=16)
        >>> parts = work(small, Step(prompts=16, group_size=8, prompt_tokens=20, completion_tokens=10, longest=10))
        >>> sorted(parts), parts["sampling"].tokens
        (['sampling', 'update'], 1600)
    """
    prompts = math.ceil(step.prompts / num_processes)
    members = prompts * step.group_size
    written = members * step.completion_tokens
    read = prompts * step.prompt_tokens
    context = step.prompt_tokens + step.completion_tokens / 2
    layer = shape.layers * (2 * shape.layer_weights + 4 * shape.attention * context)
    in_prompt = shape.layers * (2 * shape.layer_weights + 2 * shape.attention * step.prompt_tokens)
    head = 2 * shape.head_weights
    forward = read * in_prompt + written * layer
    weights = shape.layers * shape.layer_weights + shape.head_weights
    cached = 2 * shape.layers * shape.key_value * (read * step.group_size + written / 2)
    part_work = {
        "sampling": Work(
            calls=step.longest,
            tokens=read + written,
            layer_flops=forward,
            head_flops=written * head,
            bytes_read=step.longest * weight_bytes * (weights + cached),
        )
    }
    if step.reference:
        part_work["scoring"] = Work(
            _passes(step, members), read + written, forward, written * head, written * shape.vocabulary
        )
    share = step.learning_share
    passes = step.updates * _passes(step, members * share)
    factor = 4 if step.checkpointing else 3
    # The first pass after sampling knows its log-probs: the sampler gave them.
    again = (step.updates * step.minibatches - 1) / (step.updates * step.minibatches) if step.extra_forward else 0.0
    times = step.updates * share * (factor + again)
    head_times = step.updates * share * (3 + again)
    logits = step.updates * share * written * shape.vocabulary
    part_work["update"] = Work(
        passes, step.updates * share * (read + written), times * forward, head_times * written * head, logits
    )
    return part_work


def _passes(step: Step, members: float) -> int:
    """Forward passes over some members: one a micro-batch, at least one a minibatch."""
    return max(step.minibatches, math.ceil(members / step.micro_batch) if step.micro_batch else 1)
