"""Micro-batches of whole members, cut so that neighbours in length stand together and little is padding."""

from __future__ import annotations

import torch
from torch import Tensor


def micro_batches(lengths: Tensor, size: int | None, count: int | None = None) -> list[Tensor]:
    """Returns the rows of each micro-batch, longest members first, so that a batch that does not fit into memory fails
    at once.

    Args:
        lengths: `[B]`, valid decisions of each member.
        size: members in a micro-batch; `None` takes all at once.
        count: number of micro-batches to return; filler replaces missing ones (`-1`, which stands for member 0 with
            weight 0).

    Returns:
        long tensors of rows.

    Example:
        >>> [rows.tolist() for rows in micro_batches(torch.tensor([3, 9, 1]), 2, 3)]
        [[1, 0], [2], [-1]]
    """
    order = torch.argsort(lengths, descending=True, stable=True)
    batches = list(order.split(size or max(1, len(order)))) if len(order) else []
    filler = torch.full((1,), -1, dtype=torch.long, device=lengths.device)
    return batches + [filler] * max(0, (count or 0) - len(batches))


def num_micro_batches(num_members: int, size: int | None) -> int:
    """Returns the number of micro-batches of so many members.

    Example:
        >>> num_micro_batches(5, 2), num_micro_batches(5, None), num_micro_batches(0, 2)
        (3, 1, 0)
    """
    return -(-num_members // (size or max(1, num_members)))
