"""The policy as it was when training began."""

from __future__ import annotations

from typing import Literal, final

from groupwise.config import Config


@final
class FrozenReference(Config):
    """`ref = theta_0`, for the whole run.

    Args:
        adapter: with LoRA, `off` takes the model with its adapter switched off (no copy; the base model, also after a
            warm-up that trained the adapter), `copy` keeps a copy of the adapter as it was when the reference began.
            Without an adapter the weights are copied.

    Example:
        >>> FrozenReference().adapter
        'off'
    """

    kind: Literal["frozen"] = "frozen"
    adapter: Literal["off", "copy"] = "off"
