"""What a pass costs, counted: operations and bytes a row, and its seconds where it can run here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import process_time
from typing import Any, final

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from groupwise.domain.costs import PassCost
from groupwise.domain.pass_bounds import CPU_BYTES, MOST_ROWS
from groupwise.memory import peak_bytes

_FEW = 4


def pass_cost(run: Callable[[int], Any]) -> PassCost:
    """Counts the operations and bytes of a pass over one row and over a few; tensors may have no data (`meta`).

    Args:
        run: makes a pass over so many rows.

    Example:
        >>> cost = pass_cost(lambda rows: torch.zeros(rows, 8) @ torch.zeros(8, 2))
        >>> cost.flops
        32.0
    """
    cpu = torch.device("cpu")
    with _FusedAttention():
        run(1)
        with FlopCounterMode(display=False, custom_mapping=_ATTENTION) as counter:
            run(1)
        single, several = (peak_bytes(lambda rows=rows: run(rows), cpu) for rows in (1, _FEW))
    row = (several - single) / (_FEW - 1)
    return PassCost(float(counter.get_total_flops()), row, max(0.0, single - row))


@final
class _FusedAttention(TorchFunctionMode):
    """Lets attention of tensors without data take the fused kernel, as it does with data on a CPU or a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        settings = dict(kwargs or {})
        if func is not scaled_dot_product_attention or (args and args[0].device.type != "meta"):
            return func(*args, **settings)
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given = {**dict(zip(names, args, strict=False)), **settings}
        query = given["query"]
        if query.device.type != "meta" or given.get("enable_gqa"):
            return func(*args, **settings)
        mask = given.get("attn_mask")
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query,
            given["key"],
            given["value"],
            0.0,
            bool(given.get("is_causal", False)),
            attn_mask=None if mask is None or mask.dtype == torch.bool else mask,
        )[0]


def _attention(query: Any, key: Any, value: Any, *arguments: Any, **settings: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *arguments: Any, **settings: Any) -> int:
    # The scores are computed again, and four products of their size make the gradients.
    return 5 * sdpa_flop_count(query, key, value) // 2


_ATTENTION: dict[Any, Any] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}


def timed(cost: PassCost, run: Callable[[int], Any]) -> PassCost:
    """Adds the seconds of a row, of the processor's time of this process, in passes as a run makes them.

    Args:
        cost: of such a pass.
        run: makes a pass over so many rows, with data.
    """
    rows = min(MOST_ROWS, cost.rows(CPU_BYTES))
    run(rows)
    start = process_time()
    run(rows)
    return replace(cost, seconds=(process_time() - start) / rows)


def num_bytes(module: nn.Module, *, trained: bool = False) -> int:
    """Returns the bytes of a module's parameters, or of those that are trained."""
    return sum(
        parameter.numel() * parameter.element_size()
        for parameter in module.parameters()
        if parameter.requires_grad or not trained
    )


def num_weights(module: nn.Module, *, trained: bool = False) -> int:
    """Counts a module's parameters, or those that are trained."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad or not trained)
