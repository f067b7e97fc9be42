"""How far an optimiser step moves the weights, how many it leaves as they were, and whether anything else moved them,
measured on a few hundred numbers of each matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

_PER_MATRIX = 256


@final
class WeightChange:
    """The relative size of a step, `|w' - w| / |w|`, over evenly spread entries of every matrix; vectors (biases,
    scales of norms) count only where there is no matrix. Reading some hundred numbers takes no memory and hardly time.

    Args:
        parameters: trained ones, before the step.
        last: the measurement of the step before; unset at the first one, and after weights were loaded.

    Attributes:
        moved_since: how far the weights have moved since that step ended, relative; 0 unless something else than the
            optimiser writes them, `None` where it cannot be known.
        stuck: share of the weights with a gradient that are after the step what they were before.

    Example:
        >>> weight = nn.Parameter(torch.ones(4, 4))
        >>> change = WeightChange([weight])
        >>> _ = weight.data.mul_(1.1)
        >>> round(change.relative(), 3)
        0.1
    """

    def __init__(self, parameters: Sequence[nn.Parameter], last: WeightChange | None = None) -> None:
        matrices = [parameter for parameter in parameters if parameter.dim() > 1] or list(parameters)
        self._matrices = [matrix for matrix in matrices if matrix.is_contiguous()]
        self._before = self._read(self._matrices)
        self._pulled = self._read([_gradient(matrix) for matrix in self._matrices]) != 0
        self.stuck = 0.0
        self._after: Tensor | None = None
        after = None if last is None else last._after
        self.moved_since: float | None = None
        if after is not None and after.shape == self._before.shape:
            self.moved_since = _relative(self._before, after)

    def relative(self) -> float:
        """Returns the size of what has changed since; 0 of weights that are all 0."""
        self._after = self._read(self._matrices)
        num_pulled = int(self._pulled.sum())
        self.stuck = int((self._pulled & (self._after == self._before)).sum()) / num_pulled if num_pulled else 0.0
        return _relative(self._after, self._before)

    @staticmethod
    def _read(matrices: Sequence[Tensor]) -> Tensor:
        rows = [
            matrix.detach().reshape(-1)[:: max(1, matrix.numel() // _PER_MATRIX)][:_PER_MATRIX].double()
            for matrix in matrices
        ]
        return torch.cat(rows) if rows else torch.zeros(1, dtype=torch.float64)


def _gradient(parameter: nn.Parameter) -> Tensor:
    # Without one, as many zeros that take no memory.
    return parameter.detach().new_zeros(1).expand(parameter.numel()) if parameter.grad is None else parameter.grad


def _relative(weights: Tensor, before: Tensor) -> float:
    size = float(before.norm())
    return float((weights - before).norm()) / size if size > 0 else 0.0
