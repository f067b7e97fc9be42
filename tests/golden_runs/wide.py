"""Everything in fp64, inside libraries too: what fp32 leaves of a number depends on the processor from its seventh
digit on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextmanager
def wide() -> Iterator[None]:
    """Where fp32 is asked for, fp64 is taken: by fresh weights and draws (the default dtype), by norms and position
    codes of libraries (`dtype=`, `.float()`).

    Draws of fp32 alone would do harm enough: torch draws normal numbers by other formulas with AVX2 than without, which
    differ by 1e-6.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Wide():
            yield
    finally:
        torch.set_default_dtype(before)


class _Wide(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        kept = {name: _widened(value) for name, value in (kwargs or {}).items()}
        return func(*(_widened(value) for value in args), **kept)


def _widened(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value
