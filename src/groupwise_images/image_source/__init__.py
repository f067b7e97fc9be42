"""Sources of images. A new one is a class in the union `SourceConfig`."""

from typing import Annotated

from pydantic import Field

from groupwise_images.image_source.base import Digits, Folder, Photographs, Table
from groupwise_images.image_source.words import Words

SourceConfig = Annotated[Digits | Words | Photographs | Folder, Field(discriminator="kind")]
"""Any source, chosen by `kind`."""

__all__ = ["Digits", "Folder", "Photographs", "SourceConfig", "Table", "Words"]
