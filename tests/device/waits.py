"""Counts where a run waits for the emulated device: each place that needs a number, a list, a shape or a copy from it.

A wait empties the queue of kernels, so that a GPU idles until Python has launched the next ones.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from tests.device.emulated import _THERE
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import groupwise

_SOURCE = str(Path(groupwise.__file__).parent.parent)
# Their result, or its shape, is read by the host.
_READ = {"_local_scalar_dense", "nonzero", "equal", "_unique2", "unique_dim", "unique_consecutive", "masked_select"}
_READ |= {"bincount"}
_BY_INDEX = {"index", "index_put", "index_put_"}


class Waits(TorchDispatchMode):
    """The waits so far, by the line of the source that waited, and the copies to the device."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if any(tensor in _THERE for tensor in given):
            indices = tree_leaves(args[1]) if name in _BY_INDEX else []
            if (
                name in _READ
                or (name == "repeat_interleave" and kwargs.get("output_size") is None)
                or any(isinstance(index, torch.Tensor) and index.dtype == torch.bool for index in indices)
            ):
                self.lines[_line()] += 1
        return func(*args, **(kwargs or {}))


def _line() -> str:
    """The innermost line of the source."""
    frame: Any = sys._getframe()
    while frame is not None and not frame.f_code.co_filename.startswith(_SOURCE):
        frame = frame.f_back
    return "tests" if frame is None else f"{frame.f_code.co_filename.removeprefix(_SOURCE + '/')}:{frame.f_lineno}"


@contextmanager
def counted_waits() -> Iterator[Waits]:
    """Counts inside `emulated_cuda()`."""
    waits = Waits()

    def moves(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            was_there = tensor in _THERE
            moved = plain(tensor, *args, **kwargs)
            is_there = isinstance(moved, torch.Tensor) and moved in _THERE
            if was_there != is_there:
                (waits.lines if was_there else waits.sent)[_line()] += 1
            return moved

        return call

    with ExitStack() as stack:
        for name in ("tolist", "to", "cpu", "cuda"):
            stack.enter_context(patch.object(torch.Tensor, name, moves(getattr(torch.Tensor, name))))
        yield stack.enter_context(waits)
