"""No prompts."""

from __future__ import annotations

from typing import Literal, final

from groupwise.domain.language.source.base import Row, Source


@final
class Nothing(Source):
    """A source without prompts, for a model that is asked something else."""

    kind: Literal["nothing"] = "nothing"

    @property
    def endless(self) -> bool:
        return False

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return []
