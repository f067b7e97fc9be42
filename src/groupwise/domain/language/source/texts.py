"""Prompts written in the experiment itself."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field

from groupwise.domain.language.source.base import Row, Source


@final
class Texts(Source):
    """A list of prompts; the first ones are held out.

    Example:
        >>> Texts(prompts=("Why is the sky blue?", "Why is grass green?")).rows(1, seed=0)
        [{'prompt': 'Why is the sky blue?'}]
    """

    kind: Literal["texts"] = "texts"
    prompts: Annotated[tuple[str, ...], Field(min_length=2)]
    """The prompts, in this order."""

    @property
    def endless(self) -> bool:
        return False

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return [{"prompt": prompt} for prompt in self.prompts[:num]]
