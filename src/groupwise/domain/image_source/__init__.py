"""Sources of images, one source a file; adding a file to this union is the whole registration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.domain.image_source.digits import Digits
from groupwise.domain.image_source.folder import Folder
from groupwise.domain.image_source.photographs import Photographs
from groupwise.domain.image_source.table import Table
from groupwise.domain.image_source.words import Words

SourceConfig = Annotated[Digits | Words | Photographs | Folder, Field(discriminator="kind")]
"""Any source, told apart by `kind`."""

__all__ = ["Digits", "Folder", "Photographs", "SourceConfig", "Table", "Words"]
