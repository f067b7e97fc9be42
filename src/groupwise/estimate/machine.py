"""The speed of a machine: measured on it, or a GPU's documented peaks with stated assumptions.

    seconds = calls (a + b L) + d tokens + e parameters + f logits + max(layer flops / R(h) + head flops / R'(h), bytes
    / bandwidth)

`a`, `b`, `d`, `e`, `f` are what calls, layers, tokens, weights and words to choose from cost beside their arithmetic;
rates are measured at some widths and taken between them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from groupwise.estimate.shape import Shape
from groupwise.estimate.work import Work

UPDATE_SHARE, SAMPLING_SHARE, BANDWIDTH_SHARE = 0.4, 0.3, 0.6
"""Assumed of a GPU's peaks: what large matrix products in training, those of sampling, and reads of weights come to."""
LAYER_SECONDS = 4e-4
"""Assumed of a GPU: starting the kernels of one layer from Python, forwards; three times as much with the backward
pass.
"""
NETWORK_BYTES = 50e9
"""Assumed between machines of eight GPUs: 400 Gbit/s each, in bytes a second."""
LINK_SHARE = 0.7


@final
@dataclass(frozen=True)
class Rates:
    """The speed of one part of a step.

    Args:
        call, layer, token, parameter, logit: seconds that each costs beside its arithmetic.
        layer_rates, head_rates: width -> operations a second.
        bandwidth: bytes a second; unset is not looked at.
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
        """Seconds of some work.

        Args:
            work: of one part.
            shape: of the model.
            optimiser_steps: in it.
            parameters: that an optimiser step changes.
        """
        beside = (
            work.calls * (self.call + self.layer * shape.layers)
            + self.token * work.tokens
            + self.parameter * optimiser_steps * parameters
            + self.logit * work.logits
        )
        arithmetic = work.layer_flops / between(self.layer_rates, shape.hidden) + work.head_flops / between(
            self.head_rates, shape.hidden
        )
        return beside + max(arithmetic, work.bytes_read / self.bandwidth if self.bandwidth else 0.0)


def between(rates: Mapping[int, float], width: int) -> float:
    """A rate at a width: between the measured ones in logarithms, and at the nearest one outside them.

    Args:
        rates: width -> operations a second.
        width: asked for.

    Example:
        >>> between({64: 1e9, 256: 4e9}, 128), between({64: 1e9, 256: 4e9}, 4096)
        (2000000000.0, 4000000000.0)
    """
    widths = sorted(rates)
    below = max((measured_width for measured_width in widths if measured_width <= width), default=widths[0])
    above = min((measured_width for measured_width in widths if measured_width >= width), default=widths[-1])
    if below == above or not widths[0] < width < widths[-1]:
        return rates[above if width <= widths[0] else below]
    place = math.log(width / below) / math.log(above / below)
    return round(math.exp((1 - place) * math.log(rates[below]) + place * math.log(rates[above])), 3)


@final
@dataclass(frozen=True)
class Machine:
    """A device that computes a step.

    Args:
        name: of it.
        parts: rates of `sampling`, `scoring` and `update`.
        measured: whether they were measured, or come from documents and assumptions.
        memory: bytes it has; unset is unknown.
        link: bytes a second between devices of one machine; unset where there is one device.
        widest: the widest model that was measured.
        tokens: the most tokens of a sequence that was measured.
    """

    name: str
    parts: Mapping[str, Rates]
    measured: bool
    memory: float | None = None
    link: float | None = None
    widest: int = 0
    tokens: int = 0

    def communication(self, gradient_bytes: float, num_processes: int, times: float) -> float:
        """Seconds of `times` all-reduces of a gradient in a ring, `2 (N - 1) / N` of its bytes each.

        Args:
            gradient_bytes: of one gradient.
            num_processes: `N`.
            times: how often.
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
        bandwidth: of its memory, bytes a second.
        memory: bytes.
        link: to each other GPU of its machine, bytes a second in one direction.
    """

    bf16: float
    fp32: float
    bandwidth: float
    memory: float
    link: float


GPUS: Mapping[str, Gpu] = {
    # NVIDIA's data sheets; dense, without sparsity. NVLink's figure is for both directions, half of it is counted.
    "A100": Gpu(312e12, 19.5e12, 2039e9, 80e9, 300e9),
    "H100": Gpu(989e12, 67e12, 3350e9, 80e9, 450e9),
    "H200": Gpu(989e12, 67e12, 4800e9, 141e9, 450e9),
    "B200": Gpu(2250e12, 75e12, 8000e9, 180e9, 900e9),
    "L40S": Gpu(362e12, 91.6e12, 864e9, 48e9, 32e9),
    "RTX4090": Gpu(165e12, 82.6e12, 1008e9, 24e9, 32e9),
}


def documented(name: str, *, half: bool) -> Machine:
    """A GPU by its documented peaks.

    Args:
        name: one of `GPUS`.
        half: whether matrix products are bfloat16.

    Example:
        >>> documented("H200", half=True).measured
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
    return Machine(name, part_rates, measured=False, memory=gpu.memory, link=gpu.link)


@final
@dataclass(frozen=True)
class Measured:
    """The record that a calibration writes; `machine` makes rates of it.

    Args:
        parts: part -> the arguments of its `Rates`.
        widest, tokens: the largest hidden width and the most tokens of a sequence that were measured.
        residuals: part -> the share by which the fit misses its own measurements, in the middle and at most.
    """

    name: str
    parts: Mapping[str, Mapping[str, Any]]
    widest: int
    tokens: int
    residuals: Mapping[str, list[float]] = field(default_factory=dict)

    def machine(self) -> Machine:
        """The device with its rates."""
        part_rates = {}
        for part, table in self.parts.items():
            by_width = {
                name: {int(width): rate for width, rate in table[name].items()}
                for name in ("layer_rates", "head_rates")
            }
            part_rates[part] = Rates(**{**table, **by_width})
        return Machine(self.name, part_rates, measured=True, widest=self.widest, tokens=self.tokens)
