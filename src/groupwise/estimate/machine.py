"""The speed of a machine: measured rates, or a GPU's documented peaks with stated assumptions.

    seconds = calls (a + b L) + d tokens + e parameters + f logits + max(layer flops / R(h) + head flops / R'(h), bytes
    / bandwidth)

`a`, `b`, `d`, `e`, `f` are the seconds of a call, a layer, a token, a changed weight and a logit beside their
arithmetic; rates are measured at some widths and interpolated between them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from groupwise.estimate.shape import Shape

# The work of one training step: calls, tokens, operations and bytes of each part, counted from the model's shape and
# the step's sizes.
#
#     layer   F = 2 W + 4 A c      operations a token: W weights of the layer, A width of attention, c mean context
#     head    H = 2 V h            operations a token whose log-prob is computed
#
#     sampling   prompts once each, then every completion token:   (P p + B n) L F + B n H
#     scoring    the reference, where the objective has one:       (P p + B n) L F + B n H
#     update     forward and twice backward, `updates_per_batch` times over the members that learn;
#                once more forward with gradient checkpointing
#     communication   the gradient, once an optimiser step; with sharded weights they are gathered twice a pass besides
#
# `P` prompts and `B` members a process, `p` and `n` tokens of a prompt and of a completion.


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


UPDATE_SHARE, SAMPLING_SHARE, BANDWIDTH_SHARE = 0.4, 0.3, 0.6
"""Assumed shares of a GPU's peaks: large matrix products in training, those in sampling, reading of weights."""
LAYER_SECONDS = 4e-4
"""Assumed seconds for starting the forward kernels of one layer from Python on a GPU; with the backward pass three
times as many.
"""
NETWORK_BYTES = 50e9
"""Assumed between machines of eight GPUs: 400 Gbit/s each, in bytes a second."""
LINK_SHARE = 0.7


@final
@dataclass(frozen=True)
class Rates:
    """The speed of one part of a step.

    Args:
        call, layer, token, parameter, logit: seconds of a call, of a layer in a call, of a token, of a parameter that
            an optimiser step changes, and of a logit, beside their arithmetic.
        layer_rates, head_rates: width -> operations a second.
        bandwidth: bytes a second that memory delivers; unset ignores the time of reading.
    """

    call: float
    layer: float
    token: float
    parameter: float
    logit: float
    layer_rates: Mapping[int, float]
    head_rates: Mapping[int, float]
    bandwidth: float | None = None

    def seconds(self, work: Work, shape: Shape, optimiser_steps: int = 0, parameters: int = 0) -> float:
        """Returns the seconds of the work of one part of a step.

        Args:
            optimiser_steps: number of optimiser steps in this part.
            parameters: number of parameters that an optimiser step changes.
        """
        overhead = (
            work.calls * (self.call + self.layer * shape.layers)
            + self.token * work.tokens
            + self.parameter * optimiser_steps * parameters
            + self.logit * work.logits
        )
        arithmetic = work.layer_flops / interpolate_rate(
            self.layer_rates, shape.hidden
        ) + work.head_flops / interpolate_rate(self.head_rates, shape.hidden)
        return overhead + max(arithmetic, work.bytes_read / self.bandwidth if self.bandwidth else 0.0)


def interpolate_rate(rates: Mapping[int, float], width: int) -> float:
    """Returns the rate at a width, interpolated in logarithms; outside the measured widths the nearest rate.

    Args:
        rates: width -> operations a second.
        width: width of the model.

    Example:
        >>> interpolate_rate({64: 1e9, 256: 4e9}, 128), interpolate_rate({64: 1e9, 256: 4e9}, 4096)
        (2000000000.0, 4000000000.0)
    """
    widths = sorted(rates)
    below = max((measured_width for measured_width in widths if measured_width <= width), default=widths[0])
    above = min((measured_width for measured_width in widths if measured_width >= width), default=widths[-1])
    if below == above or not widths[0] < width < widths[-1]:
        return rates[above if width <= widths[0] else below]
    fraction = math.log(width / below) / math.log(above / below)
    return round(math.exp((1 - fraction) * math.log(rates[below]) + fraction * math.log(rates[above])), 3)


@final
@dataclass(frozen=True)
class Machine:
    """A device that computes a step.

    Args:
        name: name of the device in messages.
        part_rates: rates of `sampling`, `scoring` and `update`.
        is_measured: whether the rates were measured, or come from documents and assumptions.
        memory: bytes of the device's memory; unset where unknown.
        link: bytes a second between devices of one machine; unset where there is one device.
        widest: the largest hidden width of a measured model.
        tokens: tokens of the longest measured sequence.
        unmeasured: parts of a step whose layers took no measurable time, so that their rates are the least.
    """

    name: str
    part_rates: Mapping[str, Rates]
    is_measured: bool
    memory: float | None = None
    link: float | None = None
    widest: int = 0
    tokens: int = 0
    unmeasured: Sequence[str] = ()

    def communication(self, gradient_bytes: float, num_processes: int, times: float) -> float:
        """Returns the seconds of `times` all-reduces of a gradient in a ring, `2 (N - 1) / N` of its bytes each.

        Args:
            gradient_bytes: bytes of one whole gradient.
            num_processes: number `N` of processes in the ring.
        """
        if num_processes == 1 or self.link is None:
            return 0.0
        speed = LINK_SHARE * (self.link if num_processes <= 8 else min(self.link, NETWORK_BYTES))
        return times * 2 * (num_processes - 1) / num_processes * gradient_bytes / speed


@final
@dataclass(frozen=True)
class Gpu:
    """Documented peaks of one GPU.

    Args:
        bf16, fp32: dense operations a second.
        bandwidth: bytes a second that its memory delivers.
        memory: bytes of its memory.
        link: bytes a second in one direction to another GPU of the same machine.
    """

    bf16: float
    fp32: float
    bandwidth: float
    memory: float
    link: float


GPUS: Mapping[str, Gpu] = {
    # The numbers are from NVIDIA's data sheets, without sparsity. NVLink's number is for two directions: half counts.
    "A100": Gpu(312e12, 19.5e12, 2039e9, 80e9, 300e9),
    "H100": Gpu(989e12, 67e12, 3350e9, 80e9, 450e9),
    "H200": Gpu(989e12, 67e12, 4800e9, 141e9, 450e9),
    "B200": Gpu(2250e12, 75e12, 8000e9, 180e9, 900e9),
    "L40S": Gpu(362e12, 91.6e12, 864e9, 48e9, 32e9),
    "RTX4090": Gpu(165e12, 82.6e12, 1008e9, 24e9, 32e9),
}


def documented_machine(name: str, *, half: bool) -> Machine:
    """Returns the rates of a GPU that follow from its documented peaks.

    Args:
        name: name of a GPU in `GPUS`.
        half: whether matrix products are bfloat16.

    Example:
        >>> documented_machine("H200", half=True).is_measured
        False
    """
    gpu = GPUS[name]
    peak = gpu.bf16 if half else gpu.fp32

    def rates(share: float, passes: int, bandwidth: float | None) -> Rates:
        return Rates(
            0.0,
            passes * LAYER_SECONDS,
            0.0,
            16 / (BANDWIDTH_SHARE * gpu.bandwidth),
            0.0,
            {1: share * peak},
            {1: share * peak},
            bandwidth,
        )

    part_rates = {
        "sampling": rates(SAMPLING_SHARE, 1, BANDWIDTH_SHARE * gpu.bandwidth),
        "scoring": rates(UPDATE_SHARE, 1, None),
        "update": rates(UPDATE_SHARE, 3, None),
    }
    return Machine(name, part_rates, is_measured=False, memory=gpu.memory, link=gpu.link)


@final
@dataclass(frozen=True)
class CalibratedRates:
    """The record that a calibration writes; `machine` turns it into rates.

    Args:
        parts: part -> the arguments of its `Rates`.
        widest, tokens: the largest hidden width and the longest sequence that were measured.
        residuals: part -> median and largest relative error of the fit on its own measurements.
        unmeasured: parts whose layers took no measurable time.
    """

    name: str
    parts: Mapping[str, Mapping[str, Any]]
    widest: int
    tokens: int
    residuals: Mapping[str, list[float]] = field(default_factory=dict)
    unmeasured: Sequence[str] = ()

    def machine(self) -> Machine:
        """Returns the device with its rates."""
        part_rates = {}
        for part, table in self.parts.items():
            by_width = {
                name: {int(width): rate for width, rate in table[name].items()}
                for name in ("layer_rates", "head_rates")
            }
            part_rates[part] = Rates(**{**table, **by_width})
        return Machine(
            self.name,
            part_rates,
            is_measured=True,
            widest=self.widest,
            tokens=self.tokens,
            unmeasured=self.unmeasured,
        )
