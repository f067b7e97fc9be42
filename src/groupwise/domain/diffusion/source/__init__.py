"""Sources of prompts, and of images to learn from, one source a file; adding a file to this union is the whole
registration.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.domain.diffusion.source.digits import Digits
from groupwise.domain.diffusion.source.image_pairs import ImagePairs
from groupwise.domain.diffusion.source.prompts import PromptFile
from groupwise.domain.diffusion.source.texts import Texts

SourceConfig = Annotated[Digits | ImagePairs | PromptFile | Texts, Field(discriminator="kind")]
"""Any source, told apart by `kind`."""

__all__ = ["Digits", "ImagePairs", "PromptFile", "SourceConfig", "Texts"]
