"""Sources of prompts. A source gives rows of named columns; one of them is the prompt."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.domain.language.source.base import Row, Source, Turns
from groupwise.domain.language.source.cups import Cups
from groupwise.domain.language.source.files import Files
from groupwise.domain.language.source.hidden_number import HiddenNumber
from groupwise.domain.language.source.hub import Hub
from groupwise.domain.language.source.reasoning_gym import ReasoningGym
from groupwise.domain.language.source.rows import Rows
from groupwise.domain.language.source.sorting import Sorting
from groupwise.domain.language.source.tales import Tales
from groupwise.domain.language.source.texts import Texts

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
"""Any source, told apart by `kind`."""
