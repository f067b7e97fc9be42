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
from groupwise.estimate.work import Work

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
