"""How members are cut into micro-batches: whole members, neighbours in length, so that little is padding."""

from __future__ import annotations

import torch
from torch import Tensor


def micro_batches(lengths: Tensor, size: int | None, count: int | None = None) -> list[Tensor]:
    """Rows of each micro-batch, longest members first (what does not fit in memory fails at once).

    Args:
        lengths: `[B]` valid decisions of each member.
        size: members in a micro-batch; `None` takes all at once.
        count: number of micro-batches to return; missing ones are filler (`-1`, which stands for member 0 with weight
            0).

    Returns:
        long tensors of rows.

    Example:
        >>> [rows.tolist() for rows in micro_batches(torch.tensor([3, 9, 1]), 2, 3)]
        [[1, 0], [2], [-1]]
    """
    order = torch.argsort(lengths, descending=True, stable=True)
    parts = list(order.split(size or max(1, len(order)))) if len(order) else []
    filler = torch.full((1,), -1, dtype=torch.long, device=lengths.device)
    return parts + [filler] * max(0, (count or 0) - len(parts))


def num_micro_batches(num_members: int, size: int | None) -> int:
    """How many micro-batches so many members make.

    Example:
        >>> num_micro_batches(5, 2), num_micro_batches(5, None), num_micro_batches(0, 2)
        (3, 1, 0)
    """
    return -(-num_members // (size or max(1, num_members)))
