"""A kind's name in place of a table: `mode = "hybrid"` for `mode = { kind = "hybrid" }`."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, BeforeValidator

from groupwise.config.errors import nearest
from groupwise.config.shape import Shape


def kind_alone(union: Any) -> BeforeValidator:
    """A validator for a union of kinds: a text is the kind of that name with its defaults, everything else is left as it is.

    Args:
        union: classes with a `kind`, as they stand in the annotation.

    Returns:
        what goes around the annotation that tells the kinds apart.

    Raises:
        ValueError: a text that is no kind; names those there are. (When a value is read.)

    Example:
        >>> from groupwise.reward import Vqa
        >>> Vqa(mode="soft").mode
        Soft(kind='soft')
    """
    classes: dict[str, type[BaseModel]] = {kind: model for model in get_args(union) for kind in Shape.of(model).kinds()}

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value not in classes:
            meant = nearest(value, tuple(classes))
            hint = f"; did you mean {meant}?" if meant else ""
            raise ValueError(f"{value!r} is no kind; allowed: {', '.join(classes)}{hint}")
        return classes[value].model_validate({"kind": value})

    return BeforeValidator(read, json_schema_input_type=str | union)
