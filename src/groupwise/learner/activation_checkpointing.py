"""Recomputing activations in the backward pass, switched on and off on any module that offers it: less memory for more
time, the same gradients.
"""

from __future__ import annotations

from typing import Any

from torch import nn


def offers_checkpointing(module: nn.Module) -> bool:
    """Returns whether the module offers to recompute its activations.

    Example:
        >>> offers_checkpointing(nn.Linear(1, 1))
        False
    """
    return _method(module, "enable") is not None


def checkpoint_activations(module: nn.Module, active: bool) -> None:
    """Switches the recomputing of activations on or off, unless the module is in that state already.

    Args:
        module: a model of transformers or diffusers, perhaps with an adapter around it; where `active`, one that
            offers to recompute.
        active: whether activations are recomputed.

    Example:
        >>> checkpoint_activations(nn.Linear(1, 1), False)
    """
    if active == any(getattr(layer, "gradient_checkpointing", False) for layer in module.modules()):
        return
    if not active:
        _method(module, "disable")()
        return
    enable = _method(module, "enable")
    if enable.__name__.startswith("enable"):
        enable()
        return
    name = enable.__name__.removesuffix("_enable") + "_kwargs"
    # The re-entrant form loses gradients where a block's input carries none, as under an adapter.
    enable(**{name: {"use_reentrant": False}})


def _method(module: Any, verb: str) -> Any:
    """Returns the module's method that enables or disables recomputing, or `None` where the module has no such method.

    transformers renamed the method and warns at the old name; diffusers has the words in another order.
    """
    if getattr(module, "_supports_gradient_checkpointing", True) is False:
        return None
    names = (f"activation_checkpointing_{verb}", f"gradient_checkpointing_{verb}", f"{verb}_gradient_checkpointing")
    return next((method for name in names if callable(method := getattr(module, name, None))), None)
