"""Who computes in less than fp64."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

GIVEN = frozenset({"aten.lift_fresh.default", "aten.unsqueeze.default", "aten._to_copy.default"})
"""How data come in, which are given in fp32, the same everywhere."""


class Narrow(TorchDispatchMode):
    """Notes what gives a tensor of less than fp64."""

    def __init__(self) -> None:
        super().__init__()
        self.computed: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        parts = result if isinstance(result, (tuple, list)) else [result]
        if any(
            isinstance(part, torch.Tensor) and part.is_floating_point() and part.dtype != torch.float64
            for part in parts
        ):
            self.computed.add(str(func))
        return result
