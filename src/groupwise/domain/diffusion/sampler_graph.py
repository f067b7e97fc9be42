"""The sampler's own graph: the first update after sampling differentiates what sampling computed, and runs the model no
second time.

What it costs is memory, as much as one backward pass over all transitions at once takes anyway. So it is kept only
where such a pass is what the update would do: without slices (`transitions_at_once`), without gradient checkpointing,
for an update of most of the batch.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor, nn

from groupwise.domain.diffusion.transition import Transition

_calls = itertools.count()


@final
@dataclass(frozen=True)
class Kept:
    """Means of all decisions of one call of the sampler, with their graph.

    Args:
        mean: `[B, W, ...]`, with gradient.
        std, step_size: `[W]`.
        versions: of the weights that computed them.
        call: a number of its own, which the samples carry too.
    """

    mean: Tensor
    std: Tensor
    step_size: Tensor
    versions: tuple[int, ...]
    call: int = field(default_factory=lambda: next(_calls))

    @staticmethod
    def of(transitions: list[Transition], module: nn.Module) -> Kept:
        """What the sampler went through, under the weights as they are now."""
        first = [each.std[0] for each in transitions], [each.step_size[0] for each in transitions]
        return Kept(
            torch.stack([each.mean for each in transitions], 1),
            torch.stack(first[0]),
            torch.stack(first[1]),
            versions(module),
        )

    def serves(self, module: nn.Module, call: Tensor) -> bool:
        """Whether the weights are still those, and members whose `call` is given are most of the batch and of no other.

        A backward pass through the graph costs two forward passes for every member of the batch; without it, three for
        every member of the update.
        """
        return (
            3 * len(call) > 2 * len(self.mean) and bool((call == self.call).all()) and versions(module) == self.versions
        )

    def at(self, row: Tensor, decision: Tensor) -> Transition:
        """The Gaussians of pairs: members by their place in the sampler's batch, and decisions."""
        return Transition(self.mean[row, decision], self.std[decision], self.step_size[decision])


def wanted(module: nn.Module, at_once: int | None) -> bool:
    """Whether a graph is to be kept: gradients are on, and memory is not being saved elsewhere."""
    saving = at_once is not None or any(getattr(part, "gradient_checkpointing", False) for part in module.modules())
    return torch.is_grad_enabled() and not saving


def versions(module: nn.Module) -> tuple[int, ...]:
    """How often each weight was changed in place."""
    return tuple(parameter._version for parameter in module.parameters() if parameter.requires_grad)
