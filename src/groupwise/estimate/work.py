"""The work of one training step: calls, tokens, operations and bytes of each part, counted from the model's shape and
the step's sizes.

    layer   F = 2 W + 4 A c      operations a token: W weights of the layer, A width of attention, c mean context
    head    H = 2 V h            operations a token whose log-prob is computed

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
        prompts: number of prompts a step.
        group_size: number of members a prompt.
        prompt_tokens: mean tokens of a prompt.
        completion_tokens: mean tokens of a completion.
        longest: tokens of the longest completion, which is the number of the sampler's calls.
        updates: passes over the batch.
        minibatches: optimiser steps a pass.
        micro_batch: members in one forward and backward pass; unset takes all.
        learning_share: share of the members that have a gradient; groups with equal rewards have none.
        reference: whether a reference scores every member.
        extra_forward: whether the loss must be known before the gradient (batch scope), which costs a pass without
            gradient.
        checkpointing: whether activations are computed again in the backward pass.
        served: whether servers sample; their time is still that of sampling on the machine. The memory of those on
            devices of their own is not counted.
        server_bytes: memory of a device that a server which shares it holds while it is awake.
        server_sleeps: whether that server gives its memory back while nothing is sampled.

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
    served: bool = False
    server_bytes: float = 0.0
    server_sleeps: bool = False

    @property
    def members(self) -> int:
        """Members of a step."""
        return self.prompts * self.group_size


@final
@dataclass(frozen=True)
class Work:
    """The work of one part of a step on one process.

    Args:
        calls: number of the model's forward passes.
        tokens: number of tokens that go through the model.
        logits: number of computed logits: completion tokens times the size of the vocabulary.
        bytes_read: bytes of weights and cache that memory has to deliver in calls of few tokens.
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
    """Returns the work of each part of a step, on one of several processes.

    Args:
        num_processes: number of processes that divide the prompts.
        weight_bytes: number of bytes of one weight.

    Returns:
        `sampling`, `scoring` and `update`; scoring is left out where there is nothing to score.

    Example:
        >>> small = Shape(hidden=64, intermediate=192, vocabulary=32, layers=3, heads=4, kv_heads=2, head_width=16)
        >>> part_work = work(small, Step(prompts=16, group_size=8, prompt_tokens=20, completion_tokens=10, longest=10))
        >>> sorted(part_work), part_work["sampling"].tokens
        (['sampling', 'update'], 1600)
    """
    prompts = math.ceil(step.prompts / num_processes)
    members = prompts * step.group_size
    completion_tokens = members * step.completion_tokens
    prompt_tokens = prompts * step.prompt_tokens
    context = step.prompt_tokens + step.completion_tokens / 2
    completion_layer = shape.layers * (2 * shape.layer_weights + 4 * shape.attention * context)
    prompt_layer = shape.layers * (2 * shape.layer_weights + 2 * shape.attention * step.prompt_tokens)
    head = 2 * shape.head_weights
    forward = prompt_tokens * prompt_layer + completion_tokens * completion_layer
    weights = shape.layers * shape.layer_weights + shape.head_weights
    cached = 2 * shape.layers * shape.key_value * (prompt_tokens * step.group_size + completion_tokens / 2)
    part_work = {
        "sampling": Work(
            calls=step.longest,
            tokens=prompt_tokens + completion_tokens,
            layer_flops=forward,
            head_flops=completion_tokens * head,
            bytes_read=step.longest * weight_bytes * (weights + cached),
        )
    }
    if step.reference:
        part_work["scoring"] = Work(
            _passes(step, members),
            prompt_tokens + completion_tokens,
            forward,
            completion_tokens * head,
            completion_tokens * shape.vocabulary,
        )
    share = step.learning_share
    passes = step.updates * _passes(step, members * share)
    pass_cost = 4 if step.checkpointing else 3
    # The first pass after sampling needs no extra forward pass: the sampler recorded its log-probs.
    forward_share = (
        (step.updates * step.minibatches - 1) / (step.updates * step.minibatches) if step.extra_forward else 0.0
    )
    pass_factor = step.updates * share * (pass_cost + forward_share)
    head_factor = step.updates * share * (3 + forward_share)
    logits = step.updates * share * completion_tokens * shape.vocabulary
    part_work["update"] = Work(
        passes,
        step.updates * share * (prompt_tokens + completion_tokens),
        pass_factor * forward,
        head_factor * completion_tokens * head,
        logits,
    )
    return part_work


def _passes(step: Step, members: float) -> int:
    """Counts the forward passes over some members: one a micro-batch, at least one a minibatch."""
    return max(step.minibatches, math.ceil(members / step.micro_batch) if step.micro_batch else 1)
