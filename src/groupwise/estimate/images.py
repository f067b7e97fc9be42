"""The estimate of a step of a model that makes images: memory, operations and seconds by part.

    sampling   rows of the model: prompts and members by what the domain samples, each transition once
    scoring    the reference, where the objective has one: the rows of an update, without gradient
    update     rows with gradient, `updates_per_batch` times; three times the operations of a forward pass, four with
               checkpointing, as they were counted

Rows are cut into passes as a run cuts them (`groupwise.domain.pass_sizes`): what a pass holds is bounded, whatever the
number of prompts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from groupwise.domain.costs import ImageCosts, PassCost
from groupwise.domain.pass_sizes import CPU_BYTES, CUDA_SHARE, MOST_ROWS
from groupwise.estimate.machine import SAMPLING_SHARE, UPDATE_SHARE, Gpu


@final
@dataclass(frozen=True)
class ImageStep:
    """The sizes of a step, over all processes.

    Args:
        prompts, group_size: prompts a step, and members a prompt.
        updates: passes over the batch.
        reference: whether a reference scores what was sampled.
        copy_of_reference: whether the reference has weights of its own.
    """

    prompts: int
    group_size: int
    updates: int = 1
    reference: bool = False
    copy_of_reference: bool = False


@final
@dataclass(frozen=True)
class ImageEstimate:
    """The costs of a step.

    Args:
        flops: part -> operations of one process.
        seconds: part -> seconds; empty where nothing was measured and no GPU is named.
        bytes: part -> bytes on one process; `peak` is the largest sum at any moment.
        rows: part -> rows of a pass.
        assumptions: sentences on numbers that nothing measured.
    """

    flops: Mapping[str, float]
    seconds: Mapping[str, float]
    bytes: Mapping[str, float]
    rows: Mapping[str, int]
    assumptions: Sequence[str]


def estimate_images(
    costs: ImageCosts, step: ImageStep, *, gpu: Gpu | None = None, half: bool = False, num_processes: int = 1
) -> ImageEstimate:
    """Applies counted costs to a step.

    Args:
        costs: of the model.
        gpu: by whose documented peaks seconds are computed, and whose memory bounds passes; unset is this machine's
            processor.
        half: whether matrix products are in half precision.
        num_processes: devices that share the step's prompts.

    Example:
        >>> costs = ImageCosts(
        ...     "UNet",
        ...     10,
        ...     10,
        ...     40.0,
        ...     0.0,
        ...     40.0,
        ...     PassCost(2.0, 8.0, 0.0),
        ...     PassCost(6.0, 64.0, 0.0),
        ...     None,
        ...     1,
        ...     0,
        ...     10,
        ...     0,
        ...     9,
        ...     32.0,
        ...     None,
        ...     True,
        ... )
        >>> estimated = estimate_images(costs, ImageStep(prompts=2, group_size=4))
        >>> estimated.flops["sampling"], estimated.flops["update"]
        (160.0, 432.0)
    """
    prompts = math.ceil(step.prompts / num_processes)
    members = prompts * step.group_size
    sampled = prompts * costs.sampled_a_prompt + members * costs.sampled_a_member
    updated = prompts * costs.updated_a_prompt + members * costs.updated_a_member
    counts: dict[str, tuple[PassCost, int]] = {"sampling": (costs.forward, sampled)}
    if costs.decode is not None:
        counts["decoding"] = costs.decode, members
    if step.reference:
        counts["scoring"] = costs.forward, updated
    counts["update"] = costs.update, step.updates * updated
    resident = {
        "weights": costs.weight_bytes,
        "frozen parts": costs.frozen_bytes,
        "gradients": costs.trained_bytes,
        "moments": 2 * costs.trained_bytes,
        "reference": costs.trained_bytes if step.copy_of_reference else 0.0,
        "batch": members * costs.member_bytes,
    }
    budget = CPU_BYTES if gpu is None else max(0.0, CUDA_SHARE * (gpu.memory - sum(resident.values())))
    rows = {part: _rows(part, cost, count, costs, budget) for part, (cost, count) in counts.items()}
    passes = {f"a pass of {part}": counts[part][0].bytes(rows[part]) for part in counts if part != "scoring"}
    seconds = {part: _seconds(part, cost, count, costs, gpu, half) for part, (cost, count) in counts.items()}
    largest = max(passes.values())
    if costs.keeps_graph and rows["update"] >= updated and "decoding" in counts:
        # Images are decoded while the graph waits for the first update.
        largest = max(largest, passes["a pass of update"] + passes["a pass of decoding"])
    return ImageEstimate(
        flops={part: cost.flops * count for part, (cost, count) in counts.items()},
        seconds={part: value for part, value in seconds.items() if value is not None},
        bytes={**resident, **passes, "peak": sum(resident.values()) + largest},
        rows=rows,
        assumptions=_assumptions(costs, gpu),
    )


def _rows(part: str, cost: PassCost, count: int, costs: ImageCosts, budget: float) -> int:
    if costs.stated_rows is not None and part != "decoding":
        return min(count, costs.stated_rows)
    fit = cost.rows(budget)
    return max(1, min(count, fit if part == "update" else min(fit, MOST_ROWS // costs.rows_of_model)))


def _seconds(part: str, cost: PassCost, count: int, costs: ImageCosts, gpu: Gpu | None, half: bool) -> float | None:
    if gpu is not None:
        share = UPDATE_SHARE if part == "update" else SAMPLING_SHARE
        # An autoencoder computes in single precision.
        peak = gpu.bf16 if half and part != "decoding" else gpu.fp32
        return cost.flops * count / (share * peak)
    if cost.seconds is not None:
        return cost.seconds * count
    if costs.forward.seconds is None or not costs.forward.flops:
        return None
    return cost.flops * count * costs.forward.seconds / costs.forward.flops


def _assumptions(costs: ImageCosts, gpu: Gpu | None) -> list[str]:
    assumptions = []
    if costs.is_counted:
        assumptions.append("memory: counted from the configuration files, with fused attention as on a CPU")
    if gpu is not None:
        assumptions.append("seconds: documented peaks and assumed efficiencies, nothing was measured")
    elif costs.forward.seconds is None:
        assumptions.append("seconds: the model is too large to be timed here; name a GPU, --gpu H100")
    elif costs.decode is not None:
        assumptions.append("seconds of decoding: at the rate of sampling")
    return assumptions
