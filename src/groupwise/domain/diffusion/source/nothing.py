"""No prompts."""

from __future__ import annotations

from typing import Literal, final

from groupwise.config import Config
from groupwise.domain.diffusion.source.base import Content


@final
class Nothing(Config):
    """A source without prompts, for a model that is asked something else."""

    kind: Literal["nothing"] = "nothing"

    def read(self) -> Content:
        """Returns no prompts."""
        return Content(())
