"""A bound from the arithmetic on how far two computations of one run may end apart, where norms and position codes
inside the model round to fp32.

Every number that an RMSNorm returns has passed through fp32: its input is rounded (relative error `u = 2^-24`), `H`
squares are summed one after the other and divided (`(H + 1) u` of the mean, half of it in its root), the root is taken
and inverted (`2 u`), and multiplied (`u`). A rotary code is a cosine within one unit in the last place (`2 u`) of an
angle that is the same product in both. So a number is at most `(H/2 + 5) u` from its exact value, and `(H + 10) u` in
one computation from the other. The backward pass of a norm has the same steps twice, for the part along its input and
the part across: as much again.

How far that moves the end is measured, for it is what training magnifies. A nudge multiplies each of these numbers, and
each of their cotangents, by `1 +- delta` with a sign of its own. To first order a weight ends `delta J s` away, and
over random signs `E (J s)^2 = |J|^2`. Rounding errors are taken as independent and of mean zero, as in the
probabilistic analysis of Higham and Mary (SIAM J. Sci. Comput. 41, 2019, A2815). Then Hoeffding's inequality holds for
errors of at most `c u` each: `|J e| > t c u |J|` with a chance of at most `2 exp(-t^2 / 2)`. So, for all `W` weights
together but for a chance of `p = 1e-12`,

    bound = (rms of a weight's move under nudges, the largest) / delta * c u * sqrt(2 ln(2 W / p)),    c = 2 (H + 10)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

UNIT = 2.0**-24
DELTA = 2.0**-20
"""Far above rounding in fp64, and far below what moves a ratio over the edge of its trust region."""
NUM_NUDGES = 4
CHANCE = 1e-12


class _Nudge(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, forwards: Tensor, backwards: Tensor) -> Tensor:
        ctx.save_for_backward(backwards)
        return value * forwards

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0] * ctx.saved_tensors[0], None, None


class Nudges:
    """Turns of one replay's norms and position codes by `1 +- DELTA`, whose signs are drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, model: nn.Module) -> None:
        """Puts a hook on every module that rounds."""
        rounding = [
            module for module in model.modules() if type(module).__name__.endswith(("RMSNorm", "RotaryEmbedding"))
        ]
        assert rounding
        for module in rounding:
            module.register_forward_hook(lambda module, inputs, value: self._turned(value))

    def _turned(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._turned(part) for part in value)
        return _Nudge.apply(value, self._signs(value), self._signs(value))

    def _signs(self, value: Tensor) -> Tensor:
        return 1 + DELTA * (2.0 * torch.randint(2, value.shape, generator=self.generator, dtype=torch.float64) - 1)


def bound(replayed: Callable[[Callable[[nn.Module], None]], dict[str, Tensor]], width: int) -> float:
    """The bound above. `replayed` gives what a replay whose model was touched ends with; `width` is the longest row
    that a norm sums.
    """
    plain = replayed(lambda model: None)
    squares = {name: torch.zeros_like(weight) for name, weight in plain.items()}
    for seed in range(NUM_NUDGES):
        for name, weight in replayed(Nudges(seed)).items():
            squares[name] += (weight - plain[name]) ** 2 / NUM_NUDGES
    most = max(float(square.sqrt().max()) for square in squares.values())
    num_weights = sum(weight.numel() for weight in plain.values())
    return most / DELTA * 2 * (width + 10) * UNIT * math.sqrt(2 * math.log(2 * num_weights / CHANCE))
