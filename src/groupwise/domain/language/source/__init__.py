"""Sources of prompts. A source gives rows of named columns; one of them is the prompt."""

# ruff: noqa: F401

from typing import Annotated

from pydantic import Field

from groupwise.domain.language.source.base import Files, Hub, ReasoningGym, Row, Rows, Source, Texts, Turns
from groupwise.domain.language.source.toys import Cups, HiddenNumber, Sorting, Tales

SourceConfig = Annotated[
    Cups | Sorting | HiddenNumber | Tales | ReasoningGym | Texts | Files | Hub | Rows, Field(discriminator="kind")
]
"""Any source, distinguished by `kind`."""
