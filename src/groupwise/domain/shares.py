"""An evaluation that several processes share: each computes its part of a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from groupwise.domain.protocol import Peers

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_shares(
    items: Sequence[_Item], peers: Peers | None, compute: Callable[[Sequence[_Item]], _Result]
) -> list[_Result]:
    """Computes a result for each process's share of a list, and returns all of them on every process, in the list's
    order. A process without a share computes nothing.

    Args:
        items: the whole list, the same on all processes, at least one item.
        peers: the processes, each of which must call this function; None for this process alone.
        compute: makes the result of some consecutive items; results travel between processes and can be pickled.

    Example:
        >>> in_shares([1, 2, 3], None, sum)
        [6]
    """
    if peers is None:
        return [compute(items)]
    share = peers.share(len(items))
    local = compute(items[share.start : share.stop]) if share else None
    return [result for result in peers.gather(local) if result is not None]
