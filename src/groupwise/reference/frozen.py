"""A reference that is the policy as it was when the reference began."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from groupwise.reference.rule import ReferenceRule


@final
class FrozenReference(ReferenceRule):
    """`ref = theta_0`, the policy at the start of the first stage that has this reference, so after a supervised
    warm-up; the stages that follow with the same `[reference]` keep it.

    Args:
        adapter: with LoRA, `copy` keeps a copy of the adapter as it was when the reference began, which may have been
            trained before; `off` takes the model with its adapter switched off (no copy; the base model, also where a
            warm-up or an earlier run trained the adapter). Without an adapter the weights are copied.

    Example:
        >>> FrozenReference().adapter
        'copy'
    """

    mixes: ClassVar[bool] = False
    kind: Literal["frozen"] = "frozen"
    adapter: Literal["copy", "off"] = "copy"

    @property
    def adapter_off(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True with `adapter = "off"`."""
        return self.adapter == "off"
