"""Sources of prompts. A source gives rows of named columns; one of them is the prompt."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.domain.language.source.base import Files, Hub, ReasoningGym, Row, Rows, Source, Texts, Turns
from groupwise.domain.language.source.cups import Cups
from groupwise.domain.language.source.hidden_number import HiddenNumber
from groupwise.domain.language.source.sorting import Sorting
from groupwise.domain.language.source.tales import Tales

__all__ = [
    "Cups",
    "Files",
    "HiddenNumber",
    "Hub",
    "ReasoningGym",
    "Row",
    "Rows",
    "Sorting",
    "Source",
    "SourceConfig",
    "Tales",
    "Texts",
    "Turns",
]

SourceConfig = Annotated[
    Cups | Sorting | HiddenNumber | Tales | ReasoningGym | Texts | Files | Hub | Rows, Field(discriminator="kind")
]
"""Any source, distinguished by `kind`."""
