"""The estimate of a step: memory, operations and seconds by part, and the assumptions behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

from groupwise.causal_lm.head_tiles import CPU_TILES, Tiles, choose_tiles
from groupwise.estimate.machine import Machine, Step, Work, work
from groupwise.estimate.shape import Shape

# The peak memory of a process, in bytes by part.
#
#     weights, gradients, AdamW's two moments    of trained weights; divided by the processes where they are sharded
#  reference                                  a second copy of the trained weights
#  sampler                                    whole weights while a sharded model samples
#  gathered                                   what is whole of shards in a pass: embedding, head and two layers, and of
#                                             what is trained the gradient
#  server                                     what a vLLM server on the same device holds, always or while it is awake
#  cache                                      keys and values of the members sampled at once
#  casts                                      under autocast the layers' weights in its type, kept from the forward to
#                                             the backward pass (with checkpointing of one layer), and while tokens are
#                                             sampled; shards do not divide them
#  activations                                of one micro-batch, kept for the backward pass:
#                                             (8 h + 5 A + 5 K + 4 f) a token and layer, or h with checkpointing and
#                                             one layer besides; an adapter in fp32 on weights of two bytes keeps the
#                                             inputs of its layers in fp32, 5 h + A + f, in place of 2 h + f
#  head                                       the logits that the head keeps at a time, by the device
#
# Sampling and updates are not at the same time, so the larger of the two counts: cache, with the whole weights where
# they are sharded, or gradients and activations. Where servers on devices of their own sample, sampling takes
# nothing.

Sharding = Literal["none", "full"]


@final
@dataclass(frozen=True)
class Numbers:
    """Bytes of the numbers of a model.

    Args:
        weight: bytes of a weight, of its gradient and of each of its moments.
        activation: bytes of one activation.
        lora_rank: rank of an adapter, which alone is trained, with fp32 weights; unset trains all weights.
    """

    weight: int = 4
    activation: int = 4
    lora_rank: int | None = None


def memory(
    shape: Shape,
    step: Step,
    num_processes: int = 1,
    numbers: Numbers | None = None,
    sharding: Sharding = "none",
    tiles: Tiles = CPU_TILES,
) -> Mapping[str, float]:
    """Returns the bytes of each part on one process.

    Args:
        num_processes: processes that divide the prompts, and with `sharding` the weights.
        sharding: `none` (every process has all weights) or `full` (weights, gradients and moments are divided, and one
            layer is gathered at a time).
        tiles: of the device's head.

    Returns:
        part -> bytes; `peak` is the largest sum at any moment.

    Example:
        A model of 7 billion weights in fp32 on eight devices: 16 bytes a weight, or two.

        >>> large = Shape(
        ...     hidden=4096,
        ...     intermediate=11008,
        ...     vocabulary=32000,
        ...     layers=32,
        ...     heads=32,
        ...     kv_heads=32,
        ...     head_width=128,
        ...     tied=False,
        ... )
        >>> small_step = Step(
        ...     prompts=8, group_size=8, prompt_tokens=100, completion_tokens=100, longest=100, micro_batch=1
        ... )
        >>> whole, shard = (memory(large, small_step, 8, sharding=sharding) for sharding in ("none", "full"))
        >>> round(sum(whole[name] for name in ("weights", "gradients", "moments")) / large.parameters, 3)
        16.0
        >>> round(whole["moments"] / shard["moments"])
        8
    """
    numbers = numbers or Numbers()
    num_shards = num_processes if sharding == "full" else 1
    num_trained, bytes_per_number = (
        (shape.parameters, numbers.weight) if numbers.lora_rank is None else (shape.lora(numbers.lora_rank), 4)
    )
    adapter = 0 if numbers.lora_rank is None else 4 * num_trained
    members = math.ceil(step.prompts / num_processes) * step.group_size
    micro_batch = min(members, step.micro_batch) if step.micro_batch else math.ceil(members / step.minibatches)
    # A prompt is forwarded once for the members of its group.
    tokens = math.ceil(micro_batch / step.group_size) * step.prompt_tokens + micro_batch * step.completion_tokens
    layer_activations = 8 * shape.hidden + 5 * shape.attention + 5 * shape.key_value + 4 * shape.intermediate
    layer_bytes = numbers.activation * layer_activations
    if numbers.lora_rank is not None and numbers.weight < 4:
        layer_bytes += 4 * (5 * shape.hidden + shape.attention + shape.intermediate)
        layer_bytes -= numbers.activation * (2 * shape.hidden + shape.intermediate)
    layer_inputs = numbers.activation * shape.hidden * shape.layers
    kept_bytes = layer_inputs + layer_bytes if step.checkpointing else layer_bytes * shape.layers
    cache = numbers.activation * 2 * shape.layers * shape.key_value * members * (step.prompt_tokens + step.longest)
    # Autocast computes in numbers of fewer bytes than the weights have.
    cast_layer = numbers.activation * shape.layer_weights if numbers.activation < numbers.weight else 0.0
    sampling_casts = 0.0 if step.served else cast_layer * shape.layers
    update_casts = cast_layer if step.checkpointing else cast_layer * shape.layers
    # Embedding and head are whole during a whole pass, and layers two at a time, where they are trained with the
    # gradient that has not been summed yet.
    gathered = numbers.weight * (2 * shape.layer_weights + (1 if shape.tied else 2) * shape.head_weights)
    gathered *= 2 if numbers.lora_rank is None else 1
    part_bytes = {
        "weights": (numbers.weight * shape.parameters + adapter) / num_shards,
        "gradients": bytes_per_number * num_trained / num_shards,
        "moments": 2 * bytes_per_number * num_trained / num_shards,
        "reference": bytes_per_number * num_trained / num_shards if step.reference else 0.0,
        "gathered": gathered if num_shards > 1 else 0.0,
        "sampler": numbers.weight * shape.parameters + adapter if num_shards > 1 and not step.served else 0.0,
        "server": step.server_bytes,
        "cache": 0.0 if step.served else cache,
        "casts": max(sampling_casts, update_casts),
        "activations": tokens * kept_bytes,
        "head": tiles.held(micro_batch * step.completion_tokens, shape.vocabulary),
    }
    resident, sampling, update = (
        sum(part_bytes[name] for name in names)
        for names in (
            ("weights", "moments", "reference"),
            ("sampler", "cache"),
            ("gathered", "gradients", "activations", "head"),
        )
    )
    sampling += step.server_bytes + sampling_casts
    update += (0.0 if step.server_sleeps else step.server_bytes) + update_casts
    return {**part_bytes, "peak": resident + max(sampling, update)}


WIDER, LONGER = 1.5, 8.0
"""Factors of width and of length beyond the measured ones from which on a number is called extrapolated."""


@final
@dataclass(frozen=True)
class Estimate:
    """The cost of a step of a model on a machine.

    Args:
        work: part -> calls, tokens and operations of one process.
        seconds: part -> seconds, with `communication` where there are several processes.
        bytes: part -> bytes on one process; `peak` is the largest sum at any moment.
        extrapolated: sentences on numbers that no measurement supports; empty where all are measured.
    """

    shape: Shape
    step: Step
    machine: Machine
    num_processes: int
    work: Mapping[str, Work]
    seconds: Mapping[str, float]
    bytes: Mapping[str, float]
    extrapolated: Sequence[str]

    @property
    def total(self) -> float:
        """Seconds of a step, without rewards and evaluation."""
        return sum(self.seconds.values())


def estimate(
    shape: Shape,
    step: Step,
    machine: Machine,
    *,
    num_processes: int = 1,
    numbers: Numbers | None = None,
    sharding: Sharding = "none",
) -> Estimate:
    """Applies the cost model to a step of a model on a machine.

    Args:
        step: sizes of the step, over all processes.
        num_processes: devices that share the step's prompts.
        sharding: whether weights, gradients and moments are divided among the processes.

    Example:
        >>> from groupwise.estimate.machine import documented_machine
        >>> small = Shape(
        ...     hidden=896, intermediate=4864, vocabulary=151936, layers=24, heads=14, kv_heads=2, head_width=64
        ... )
        >>> step_estimate = estimate(
        ...     small, Step(64, 8, 200, 300, 512), documented_machine("H100", half=True), num_processes=8
        ... )
        >>> sorted(step_estimate.seconds), step_estimate.extrapolated[0]
        (['communication', 'sampling', 'update'], 'H100: documented peaks and assumed efficiencies, nothing was measured')
    """  # noqa: E501
    numbers = numbers or Numbers()
    part_work = work(shape, step, num_processes, numbers.weight)
    trained = shape.parameters if numbers.lora_rank is None else shape.lora(numbers.lora_rank)
    optimiser_steps = step.updates * step.minibatches
    num_shards = num_processes if sharding == "full" else 1
    seconds = {
        part: (
            machine.part_rates[part].seconds(
                part_of_work,
                shape,
                optimiser_steps if part == "update" else 0,
                round(trained / num_shards) if part == "update" else 0,
            )
        )
        for part, part_of_work in part_work.items()
    }
    gradient = (numbers.weight if numbers.lora_rank is None else 4) * trained
    # Sharded, the gradient is scattered, half the traffic of an all-reduce; the weights, gathered, are the other half:
    # forwards and backwards in every pass with a gradient, once in every other pass, and once for all that is sampled.
    seconds["communication"] = machine.communication(gradient, num_processes, optimiser_steps)
    if sharding == "full":
        gathers = 1 + 2 * part_work["update"].calls + (part_work["scoring"].calls if "scoring" in part_work else 0)
        seconds["communication"] = (
            machine.communication(numbers.weight * shape.parameters / 2, num_processes, gathers)
            + seconds["communication"] / 2
        )
    if num_processes == 1:
        del seconds["communication"]
    return Estimate(
        shape,
        step,
        machine,
        num_processes,
        part_work,
        seconds,
        memory(shape, step, num_processes, numbers, sharding, _tiles(machine)),
        _extrapolated(shape, step, machine, num_processes, sharding),
    )


def _tiles(machine: Machine) -> Tiles:
    """Returns the tiles of the head on the machine, which is a documented GPU or this machine."""
    import torch

    on_gpu = not machine.is_measured or (torch.cuda.is_available() and machine.name == torch.cuda.get_device_name())
    return choose_tiles("cuda" if on_gpu else "cpu", machine.memory or float("inf"))


def _extrapolated(shape: Shape, step: Step, machine: Machine, num_processes: int, sharding: Sharding) -> list[str]:
    remarks = []
    if not machine.is_measured:
        remarks.append(f"{machine.name}: documented peaks and assumed efficiencies, nothing was measured")
    else:
        if shape.hidden > WIDER * machine.widest:
            remarks.append(
                f"hidden width {shape.hidden}: the widest model that was measured has {machine.widest}; its rate is"
                " taken"
            )
        if step.prompt_tokens + step.completion_tokens > LONGER * machine.tokens:
            remarks.append(
                f"{step.prompt_tokens + step.completion_tokens:.0f} tokens a member: the longest that was measured has"
                f" {machine.tokens}"
            )
        if machine.unmeasured:
            remarks.append(
                f"{', '.join(machine.unmeasured)}: arithmetic of the layers took no measurable time beside the rest; it"
                " is counted at the rate that a whole probe reached, so that large models take less than these seconds"
            )
        if num_processes > 1:
            remarks.append(f"{num_processes} devices: one was measured; communication is not in these seconds")
    if sharding == "full":
        remarks.append("sharded weights: their traffic is counted, and was measured on no machine")
    return remarks
