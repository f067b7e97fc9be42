"""The sampler's graph: the first update after sampling differentiates what sampling computed, and does not run the
model a second time.

The graph takes as much memory as one backward pass over all transitions at once. So it is stored only where that many
fit (`PassSizes`), without gradient checkpointing, for an update of most of the batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor, nn

from groupwise.domain.diffusion.path import Drawn
from groupwise.domain.diffusion.transition import Transition
from groupwise.domain.pass_sizes import UPDATE, PassSizes, free_memory
from groupwise.processes import is_out_of_memory

_calls = itertools.count()


@final
@dataclass(frozen=True)
class SamplerGraph:
    """Means of all decisions of one call of the sampler, with their graph.

    Args:
        mean: `[B, W, ...]`, with gradient.
        std, step_size: `[W]`.
        versions: how often each weight had been changed in place when the means were computed.
        call: the number of this call of the sampler, which its samples carry too.
    """

    mean: Tensor
    std: Tensor
    step_size: Tensor
    versions: tuple[int, ...]
    call: int = field(default_factory=lambda: next(_calls))

    @staticmethod
    def of(transitions: list[Transition], module: nn.Module) -> SamplerGraph:
        """Collects the transitions that the sampler went through, under the weights as they are now."""
        # All members of a transition have one standard deviation and one step size.
        return SamplerGraph(
            torch.stack([gaussians.mean for gaussians in transitions], 1),
            torch.stack([gaussians.std[0] for gaussians in transitions]),
            torch.stack([gaussians.step_size[0] for gaussians in transitions]),
            versions(module),
        )

    def serves(self, module: nn.Module, call: Tensor) -> bool:
        """Tests that the weights are unchanged, and that the members to update, whose calls are `call`, are most of
        this batch and of no other batch.

        A backward pass through the graph costs two forward passes for every member of the batch; without it, three for
        every member of the update.
        """
        return (
            3 * len(call) > 2 * len(self.mean) and bool((call == self.call).all()) and versions(module) == self.versions
        )

    def at(self, row: Tensor, decision: Tensor) -> Transition:
        """Returns the Gaussians of pairs: members by their place in the sampler's batch, and decisions."""
        return Transition(self.mean[row, decision], self.std[decision], self.step_size[decision])


def draw_with_graph(
    draw: Callable[[Tensor, list[Transition]], Drawn], num_members: int, module: nn.Module, passes: PassSizes
) -> tuple[Drawn | None, SamplerGraph | None]:
    """Draws all members in one pass and returns their paths with the graph; neither where memory does not hold them
    after all, so that later passes take half.

    Args:
        draw: draws the members of some rows, and adds their transitions to the list.
        passes: which said that so many transitions fit.
    """
    transitions: list[Transition] = []
    try:
        drawn = draw(torch.arange(num_members, device=next(module.parameters()).device), transitions)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        passes.halve(UPDATE, passes.rows(UPDATE))
    else:
        return drawn, SamplerGraph.of(transitions, module)
    transitions.clear()
    free_memory()
    return None, None


def should_keep_graph(module: nn.Module, num_transitions: int, passes: PassSizes) -> bool:
    """Tests that a graph of so many transitions should be stored: gradients are on, they fit into one pass, and memory
    is not saved elsewhere.
    """
    if not torch.is_grad_enabled() or UPDATE in passes.stated or num_transitions > passes.rows(UPDATE):
        return False
    return not any(getattr(part, "gradient_checkpointing", False) for part in module.modules())


def versions(module: nn.Module) -> tuple[int, ...]:
    """Counts how often each weight was changed in place."""
    return tuple(parameter._version for parameter in module.parameters() if parameter.requires_grad)
