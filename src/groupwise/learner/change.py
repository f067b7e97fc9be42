"""How far an optimiser step moves the weights, measured on a few hundred numbers of each matrix."""

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

    Example:
        >>> weight = nn.Parameter(torch.ones(4, 4))
        >>> change = WeightChange([weight])
        >>> _ = weight.data.mul_(1.1)
        >>> round(change.relative(), 3)
        0.1
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        matrices = [parameter for parameter in parameters if parameter.dim() > 1] or list(parameters)
        self._matrices = [matrix for matrix in matrices if matrix.is_contiguous()]
        self._before = self._read()

    def relative(self) -> float:
        """Returns the size of what has changed since; 0 of weights that are all 0."""
        size = float(self._before.norm())
        return float((self._read() - self._before).norm()) / size if size > 0 else 0.0

    def _read(self) -> Tensor:
        rows = [
            matrix.detach().view(-1)[:: max(1, matrix.numel() // _PER_MATRIX)][:_PER_MATRIX].double()
            for matrix in self._matrices
        ]
        return torch.cat(rows) if rows else torch.zeros(1, dtype=torch.float64)
