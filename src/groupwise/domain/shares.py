"""An evaluation that several processes share: each computes its part of a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from groupwise.domain.protocol import Peers

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_shares(
    items: Sequence[_Item],
    peers: Peers | None,
    compute: Callable[[Sequence[_Item]], _Result],
    idle: Callable[[], object] = lambda: None,
) -> list[_Result]:
    """Computes a result for each process's share of a list, and returns all of them on every process, in the list's
    order.

    Args:
        items: the whole list, the same on all processes, at least one item.
        peers: the processes, each of which must call this function; None for this process alone.
        compute: makes the result of some consecutive items; results travel between processes and can be pickled.
        idle: is called in place of `compute` on a process without a share.

    Example:
        >>> in_shares([1, 2, 3], None, sum)
        [6]
    """
    if peers is None:
        return [compute(items)]
    share = peers.share(len(items))
    local = None
    if share:
        local = compute(items[share.start : share.stop])
    else:
        idle()
    return [result for result in peers.gather(local) if result is not None]
