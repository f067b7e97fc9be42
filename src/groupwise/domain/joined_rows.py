"""Joins what slices of rows gave, so that nothing is held twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


def joined_rows(parts: Iterable[Mapping[str, Tensor]], num_rows: int) -> dict[str, Tensor]:
    """Joins tensors of consecutive slices: each slice is written into tensors of all rows and let go before the next is
    computed, where `parts` computes them one by one. Tensors with a gradient are concatenated.

    Args:
        parts: name -> `[n, ...]`, at least one part; the parts have `num_rows` rows together.
        num_rows: of the result.

    Returns:
        name -> `[num_rows, ...]`; one part is returned as it is.

    Example:
        >>> joined_rows([{"a": torch.tensor([1, 2])}, {"a": torch.tensor([3])}], 3)["a"].tolist()
        [1, 2, 3]
    """
    rest = iter(parts)
    part = dict(next(rest))
    stop = _num_rows(part)
    if stop == num_rows:
        return part
    if any(value.requires_grad for value in part.values()):
        all_parts = [part, *rest]
        return {name: torch.cat([each[name] for each in all_parts]) for name in part}
    whole = {name: value.new_empty(num_rows, *value.shape[1:]) for name, value in part.items()}
    start = 0
    while True:
        for name, rows in whole.items():
            rows[start:stop] = part[name]
        if stop >= num_rows:
            return whole
        # The part is let go before the next one is computed.
        del part
        part, start = dict(next(rest)), stop
        stop += _num_rows(part)


def joined(parts: Iterable[Tensor], num_rows: int) -> Tensor:
    """Joins one tensor a slice; see `joined_rows`.

    Example:
        >>> joined(iter([torch.zeros(2, 3), torch.ones(1, 3)]), 3).sum().item()
        3.0
    """
    return joined_rows(map(_one_tensor, parts), num_rows)["rows"]


def _one_tensor(rows: Tensor) -> dict[str, Tensor]:
    return {"rows": rows}


def _num_rows(part: Mapping[str, Tensor]) -> int:
    return len(next(iter(part.values())))
