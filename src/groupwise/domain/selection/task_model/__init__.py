"""The models that answer, one kind a file; adding a configuration to this union is the whole registration."""

from __future__ import annotations

from groupwise.domain.selection.task_model.config import DigitRules

TaskModelConfig = DigitRules
"""Any task model, told apart by `kind`."""

__all__ = ["DigitRules", "TaskModelConfig"]
