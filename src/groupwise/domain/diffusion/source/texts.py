"""Prompts written in the experiment itself."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.domain.diffusion.source.base import Content


@final
class Texts(Config):
    """A list of prompts.

    Args:
        prompts: texts, each once.

    Example:
        >>> Texts(prompts=("a red cube", "a blue ball")).read().prompts[1]
        {'prompt': 'a blue ball'}
    """

    kind: Literal["texts"] = "texts"
    prompts: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]

    def read(self) -> Content:
        """Returns every prompt once, in this order."""
        return Content([{"prompt": prompt} for prompt in dict.fromkeys(self.prompts)])
