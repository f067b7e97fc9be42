"""Recomputing activations in the backward pass, switched on and off on any module that offers it: less memory for more
time, the same gradients.
"""

from __future__ import annotations

from typing import Any

from torch import nn


def offers_checkpointing(module: nn.Module) -> bool:
    """Whether the module can be switched.

    Args:
        module: any model.

    Example:
        >>> offers_checkpointing(nn.Linear(1, 1))
        False
    """
    return _method(module, "enable") is not None


def checkpoint_activations(module: nn.Module, wanted: bool) -> None:
    """Switches it on or off; a module that is as wanted already is left alone.

    Args:
        module: a model of transformers or diffusers, perhaps with an adapter around it; for `wanted`, one that offers
            it.
        wanted: whether activations are recomputed.

    Example:
        >>> checkpoint_activations(nn.Linear(1, 1), False)
    """
    if wanted == any(getattr(each, "gradient_checkpointing", False) for each in module.modules()):
        return
    if not wanted:
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
    """transformers renamed it, and warns at the old name; diffusers has the words in another order."""
    if getattr(module, "_supports_gradient_checkpointing", True) is False:
        return None
    names = (f"activation_checkpointing_{verb}", f"gradient_checkpointing_{verb}", f"{verb}_gradient_checkpointing")
    return next((each for name in names if callable(each := getattr(module, name, None))), None)
