"""The number of rows that a forward pass without gradient takes at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.processes import is_out_of_memory

MOST_ELEMENTS = 2**19
"""Elements of the latents of one pass where no size is stated: 32 latents of 128 x 128 elements."""


@final
class PassSize:
    """The rows of one pass: those that were stated, or as many as hold `MOST_ELEMENTS` elements. Where memory runs out
    without a gradient, passes take half as many from then on. Passes with a gradient take all rows unless a size was
    stated, since their graph is kept whole.

    Args:
        stated: `domain.transitions_at_once`; None where it is not set.
        elements: elements of a latent.

    Example:
        >>> size = PassSize(None, 2**18)
        >>> size.rows, size.join(lambda rows: 2 * rows, torch.arange(5)).tolist()
        (2, [0, 2, 4, 6, 8])
    """

    def __init__(self, stated: int | None, elements: int) -> None:
        self.stated = stated
        self.rows = stated or max(1, MOST_ELEMENTS // elements)

    def join(self, compute: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """Calls `compute` on slices of `rows` and joins the results.

        Args:
            compute: rows `[N]` -> `[N, ...]`, each row by itself; its randomness must not depend on the slice.
            rows: `[N]`.

        Raises:
            ConfigError: memory ran out in a pass of one row.
        """
        if torch.is_grad_enabled() and (self.stated is None or len(rows) <= self.stated):
            return compute(rows)
        if torch.is_grad_enabled():
            return torch.cat([compute(part) for part in rows.split(self.rows)])
        parts: list[Tensor] = []
        start = 0
        while start < len(rows) or not parts:
            part = rows[start : start + self.rows]
            try:
                parts.append(compute(part))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                self._halve(len(part))
                continue
            start += max(1, len(part))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _halve(self, num_rows: int) -> None:
        """Takes half of a pass that did not fit.

        Raises:
            ConfigError: it had one row.
        """
        if num_rows <= 1:
            raise ConfigError(
                "memory ran out in a forward pass of one image; write smaller images, a smaller model, or"
                ' domain.model.dtype = "bfloat16"'
            )
        self.rows = num_rows // 2
