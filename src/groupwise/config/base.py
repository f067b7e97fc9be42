"""The base of every configuration object: frozen, strict, closed to unknown keys."""

from __future__ import annotations

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

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, ser_json_inf_nan="constants", use_attribute_docstrings=True
    )
