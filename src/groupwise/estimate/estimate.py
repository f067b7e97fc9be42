"""The estimate of a step: memory, operations and seconds by part, and the assumptions behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from groupwise.causal_lm.head_tiles import Tiles, choose_tiles
from groupwise.estimate.machine import Machine
from groupwise.estimate.memory import Numbers, Sharding, memory
from groupwise.estimate.shape import Shape
from groupwise.estimate.work import Step, Work, work

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
