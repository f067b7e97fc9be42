"""Where queries and their pools come from, one source a file; adding a file to this union is the whole registration."""

from __future__ import annotations

from groupwise.domain.selection.source.digit_rules import DigitRules

SourceConfig = DigitRules
"""Any source, told apart by `kind`."""

__all__ = ["DigitRules", "SourceConfig"]
