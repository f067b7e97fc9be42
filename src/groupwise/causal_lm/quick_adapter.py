"""LoRA layers without their bookkeeping, for the time of sampling.

A layer of peft asks at every call which adapters are active, whether they are merged, and of which variant they are. A
token of a small batch costs more of that than of arithmetic, on a GPU most of all: the kernels are over before the next
one is started. The operations that remain are peft's own, in its order, and so give the same bits:

    y = W x + (B A x) s
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn import functional


@contextmanager
def quick_adapters(model: nn.Module) -> Iterator[None]:
    """Makes every plain LoRA layer of a model compute its product without peft's bookkeeping within the block. Layers
    of any other kind, and those that are merged, switched off, hooked or in dropout when it begins, are left as they
    are.

    Args:
        model: a causal language model; one without an adapter is left as it is.

    Example:
        >>> with quick_adapters(nn.Linear(2, 2)):
        ...     pass
    """
    replaced: list[nn.Module] = []
    try:
        # Nobody has made a layer of peft where peft was never imported.
        if hasattr(model, "peft_config") and "peft.tuners.lora.layer" in sys.modules:
            for layer in model.modules():
                product = _product(layer)
                if product is not None:
                    vars(layer)["forward"] = product
                    replaced.append(layer)
        yield
    finally:
        for layer in replaced:
            vars(layer).pop("forward", None)


def _product(layer: Any) -> Callable[[Tensor], Tensor] | None:
    """Returns the product of a plain LoRA layer, None of any other module."""
    from peft.tuners.lora.layer import Linear

    if type(layer) is not Linear or "forward" in vars(layer) or layer.disable_adapters or layer.merged:
        return None
    names = [name for name in layer.active_adapters if name in layer.lora_A]
    if len(names) != 1 or names[0] in layer.lora_variant:
        return None
    parts: tuple[Any, Any, Any] = layer.base_layer, layer.lora_A[names[0]], layer.lora_B[names[0]]
    base, down, up = parts
    dropout, scaling = layer.lora_dropout[names[0]], layer.scaling[names[0]]
    if any(type(part) is not nn.Linear or _is_changed(part) for part in parts):
        return None
    if not (isinstance(dropout, nn.Identity) or (type(dropout) is nn.Dropout and not dropout.training)):
        return None
    if not getattr(layer, "cast_input_dtype_enabled", True):
        return None

    def product(x: Tensor) -> Tensor:
        # Weights are looked up at every call: a layer in shards has them for the time of its own pass.
        result = functional.linear(x, base.weight, base.bias)
        weight = down.weight
        low = functional.linear(x if x.dtype == weight.dtype else x.to(weight.dtype), weight, down.bias)
        return (result + functional.linear(low, up.weight, up.bias) * scaling).to(result.dtype)

    return product


def _is_changed(module: nn.Module) -> bool:
    """Returns whether a module does more than its class says: accelerate, for one, puts weights in place in a `forward`
    of the module's own.
    """
    return bool(module._forward_hooks or module._forward_pre_hooks) or "forward" in vars(module)
