"""Four noised copies of a flow with six elements, drawn in fp64: what the tests of `matching` share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from groupwise.objective.decisions import Deviation


@dataclass(frozen=True)
class Copies:
    """Predictions of the live and the old policy, samples and noise `[4, 6]`, times `[4]`."""

    live: Tensor
    old: Tensor
    clean: Tensor
    noise: Tensor
    time: Tensor

    def deviation(self, live: Tensor | None = None) -> Deviation:
        target = self.noise - self.clean
        return Deviation((self.live if live is None else live) - target, self.old - target, self.time, self.time)


def drawn(seed: int) -> Copies:
    generator = torch.Generator().manual_seed(seed)
    live, old, clean, noise = (torch.randn(4, 6, generator=generator, dtype=torch.float64) for _ in range(4))
    time = 0.05 + 0.9 * torch.rand(4, generator=generator, dtype=torch.float64)
    return Copies(live.requires_grad_(), old, clean, noise, time)
