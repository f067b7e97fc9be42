"""How far an optimiser step moves the weights, and whether anything else did, measured on a few hundred numbers of each
matrix.
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
        self._before = self._read()
        self._after: Tensor | None = None
        after = None if last is None else last._after
        self.moved_since: float | None = None
        if after is not None and after.shape == self._before.shape:
            self.moved_since = _relative(self._before, after)

    def relative(self) -> float:
        """Returns the size of what has changed since; 0 of weights that are all 0."""
        self._after = self._read()
        return _relative(self._after, self._before)

    def _read(self) -> Tensor:
        rows = [
            matrix.detach().view(-1)[:: max(1, matrix.numel() // _PER_MATRIX)][:_PER_MATRIX].double()
            for matrix in self._matrices
        ]
        return torch.cat(rows) if rows else torch.zeros(1, dtype=torch.float64)


def _relative(weights: Tensor, before: Tensor) -> float:
    size = float(before.norm())
    return float((weights - before).norm()) / size if size > 0 else 0.0
