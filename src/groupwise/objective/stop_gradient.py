"""The only function of the objective that stops a gradient, with a record / replay mode for finite differences.

A finite difference of a loss with stopped gradients is right only where the stopped values stay at the base point:
`recording` keeps them, and `replaying` returns them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

_recorded: list[Tensor] | None = None
_replayed: Iterator[Tensor] | None = None


def stop_gradient(value: Tensor) -> Tensor:
    """Returns `value` as a constant: its gradient is 0.

    Example:
        >>> import torch
        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> (stop_gradient(x) * x).backward()
        >>> float(x.grad)
        3.0
    """
    if _replayed is not None:
        return next(_replayed)
    stopped = value.detach()
    if _recorded is not None:
        _recorded.append(stopped)
    return stopped


@contextmanager
def recording() -> Iterator[list[Tensor]]:
    """Keeps every stopped value of the code inside, in order."""
    global _recorded
    outer, _recorded = _recorded, []
    try:
        yield _recorded
    finally:
        _recorded = outer


@contextmanager
def replaying(values: list[Tensor]) -> Iterator[None]:
    """Hands the kept values out again, in order, whatever the code inside computes.

    Args:
        values: the values that `recording` kept.

    Example:
        >>> import torch
        >>> with recording() as stopped:
        ...     _ = stop_gradient(torch.tensor(1.0))
        >>> with replaying(stopped):
        ...     float(stop_gradient(torch.tensor(5.0)))
        1.0
    """
    global _replayed
    outer, _replayed = _replayed, iter(values)
    try:
        yield
    finally:
        _replayed = outer
