"""The base of every configuration object: frozen, strict, closed to unknown keys."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """A frozen object that is its own configuration.

    Unknown keys are refused, types are not coerced, and infinity survives a round trip through JSON.
    Editors show the `Args` of a subclass's docstring, or the docstrings below its attributes, as descriptions of keys.

    Example:
        >>> class Clip(Config):
        ...     low: float = 0.2
        >>> Clip(low=0.1)
        Clip(low=0.1)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, ser_json_inf_nan="constants")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Returns a copy. Values that the original keeps in a `cached_property` are computed again in the copy."""
        copy = super().model_copy(update=update, deep=deep)
        for name in set(vars(copy)).difference(type(copy).model_fields):
            del vars(copy)[name]
        return copy

    @classmethod
    def instead_of_unknown(cls, key: str, place: str, table: Mapping[str, Any]) -> str:
        """Returns what to write in place of a key that the class does not have; empty where nothing is known of it.

        Args:
            key: the last part of the key.
            place: the dotted path of its table.
            table: the table as it is written.
        """
        return ""
