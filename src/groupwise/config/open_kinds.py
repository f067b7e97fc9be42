"""Places of a configuration where installed packages may bring kinds of table of their own, by entry points."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, final

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, PydanticKnownError, core_schema

_PACKAGE = "groupwise"

NESTED = "nested"
"""The type of an error that carries the errors of the kind that was named."""


@final
class OpenKinds:
    """Marks a place where a table of any installed kind may stand; it is to be written inside `Annotated`.

    The code of a package is imported only for the kind that a table names.

    Args:
        group: of the entry points; the name of each is a kind.
        config_of: gives the configuration class of a kind from what its entry point loads.

    Example:
        >>> "language" in OpenKinds("groupwise.domains", lambda kind, loaded: loaded).names()
        True
    """

    def __init__(self, group: str, config_of: Callable[[str, Any], type[BaseModel]]) -> None:
        self._group, self._config_of = group, config_of
        self._known: dict[str, type[BaseModel]] = {}

    def names(self) -> tuple[str, ...]:
        """The kinds that are installed."""
        return tuple(dict.fromkeys(point.name for point in _points(self._group)))

    def config(self, kind: str) -> type[BaseModel]:
        """The configuration class of a kind.

        Args:
            kind: one of `names()`.

        Raises:
            ValueError: no package or more than one brings it, its code cannot be imported, or what it names is not of
                the right class.
        """
        if kind not in self._known:
            self._known[kind] = self._config_of(kind, _load(kind, self._group))
        return self._known[kind]

    def can_read(self, kind: str) -> bool:
        """Whether the configuration class of a kind can be had; validation says why not.

        Args:
            kind: any text.
        """
        if kind not in self.names():
            return False
        try:
            self.config(kind)
        except ValueError:
            return False
        return True

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        # A package that cannot be imported is told where its kind is named.
        choices: dict[Any, CoreSchema] = {
            kind: self.config(kind).__pydantic_core_schema__ for kind in self.names() if self.can_read(kind)
        }
        if not choices:
            return {"type": "object"}
        return handler(core_schema.tagged_union_schema(choices, discriminator="kind"))

    def _read(self, value: Any) -> BaseModel:
        if isinstance(value, BaseModel):
            return value
        if not isinstance(value, Mapping):
            raise PydanticKnownError("model_type", {"class_name": "table"})
        kind = value.get("kind")
        if kind is None:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": "'kind'"})
        if not any(point.dist and point.dist.name == _PACKAGE for point in _points(self._group)):
            raise PydanticCustomError(
                "not_installed",
                "{text}",
                {
                    "text": f"the kinds of {self._group} are not known, for the installation of {_PACKAGE} does not"
                    " name them; it is of an older version, or the source was never installed: write `python -m pip"
                    " install --editable .` in the folder of its source (or `make train`), or install its wheel again"
                },
            )
        if kind not in self.names():
            raise PydanticKnownError(
                "union_tag_invalid",
                {"discriminator": "'kind'", "tag": str(kind), "expected_tags": ", ".join(self.names())},
            )
        try:
            return self.config(kind).model_validate_json(json.dumps(value))
        except ValidationError as error:
            errors = [{**details, "loc": (kind, *details["loc"])} for details in error.errors(include_url=False)]
            raise PydanticCustomError(NESTED, "{text}", {"text": str(error), "errors": errors}) from None


def flat(details: ErrorDetails) -> list[ErrorDetails]:
    """The errors that an error carries, with their whole locations.

    Args:
        details: of an error, as pydantic gives it.
    """
    if details["type"] != NESTED:
        return [details]
    inside: list[ErrorDetails] = details.get("ctx", {})["errors"]
    whole: list[Any] = [{**inner, "loc": (*details["loc"], *inner["loc"])} for inner in inside]
    return [one for inner in whole for one in flat(inner)]


@lru_cache(maxsize=8)
def _points(group: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _load(kind: str, group: str) -> Any:
    """What the entry point of a kind names."""
    points = {point.value: point for point in _points(group) if point.name == kind}
    packages = " and ".join(sorted(point.dist.name if point.dist else point.value for point in points.values()))
    if len(points) > 1:
        raise ValueError(
            f"kind = {kind!r} is brought by {len(points)} packages, {packages}; uninstall all but one of them"
        )
    (point,) = points.values()
    try:
        return point.load()
    # A stranger's package may fail in any way while it is imported.
    except Exception as error:
        raise ValueError(
            f"kind = {kind!r}: the code of package {packages} ({point.value}) cannot be imported:"
            f" {type(error).__name__}: {error}"
        ) from error
