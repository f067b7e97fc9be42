"""Places of a configuration where installed packages add kinds of tables by entry points."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, PydanticKnownError, core_schema

from groupwise.config.errors import ConfigError, Problem, nearest
from groupwise.config.import_path import why_failed
from groupwise.plugins import absent, installed_points, is_shipped

# Objects that installed packages bring by entry points. The code of a package is loaded only for the name that is
# written.


@final
@dataclass(frozen=True)
class Installed:
    """An object that an installed package brings.

    Args:
        value: the object.
        path: `package.module:name`, as the package writes it.
        package: the name of the package.
    """

    value: Any
    path: str
    package: str


def installed_names(group: str) -> tuple[str, ...]:
    """Returns the names that installed packages bring in a group of entry points.

    Example:
        >>> "language" in installed_names("groupwise.domains")
        True
    """
    return tuple(dict.fromkeys(point.name for point in installed_points(group)))


def load_installed(name: str, group: str, key: str) -> Installed:
    """Loads the object that an installed package brings under a name.

    Args:
        name: the name of the entry point.
        group: the group of the entry points.
        key: what an error calls the setting.

    Raises:
        ConfigError: no package or more than one brings it, or the code of the package cannot be imported.

    Example:
        >>> load_installed("language", "groupwise.domains", "kind").path
        'groupwise.domain.language.config:LanguageConfig'
    """
    place = f"{key} = {name!r}"
    points = {point.value: point for point in installed_points(group) if point.name == name}
    if not points:
        names = sorted(installed_names(group))
        message = (
            f"no installed package brings it (entry points of {group!r}: {', '.join(names) or 'none'}); for a function"
            " of a module write package.module:function"
        )
        raise ConfigError(Problem(place, message, suggestion=nearest(name, names)))
    packages = " and ".join(sorted(point.dist.name if point.dist else point.value for point in points.values()))
    if len(points) > 1:
        message = f"it is brought by {len(points)} packages, {packages}; uninstall all but one of them"
        raise ConfigError(Problem(place, message))
    (point,) = points.values()
    if is_shipped(point.module) and (reason := absent(point)):
        raise ConfigError(Problem(place, reason))
    try:
        return Installed(point.load(), point.value, packages)
    # Importing another package may raise anything.
    except (Exception, SystemExit) as error:
        message = f"the code of package {packages} ({point.value}) cannot be imported: {why_failed(error)}"
        raise ConfigError(Problem(place, message)) from error


NESTED = "nested"
"""The type of an error that contains the errors of the named kind."""


@final
class OpenKinds:
    """Marks a place where a table of any installed kind is allowed, for use inside `Annotated`.

    The code of a package is imported only for the kind that a table names.

    Args:
        group: the group of the entry points; the name of each entry point is a kind.
        config_of: returns the configuration class of a kind from the object of its entry point.

    Example:
        >>> "language" in OpenKinds("groupwise.domains", lambda kind, loaded: loaded).names()
        True
    """

    def __init__(self, group: str, config_of: Callable[[str, Any], type[BaseModel]]) -> None:
        self._group, self._config_of = group, config_of
        self._config_of_kind: dict[str, type[BaseModel]] = {}

    def names(self) -> tuple[str, ...]:
        """Returns the installed kinds."""
        return installed_names(self._group)

    def config(self, kind: str) -> type[BaseModel]:
        """Returns the configuration class of a kind.

        Args:
            kind: one of `names()`.

        Raises:
            ValueError: no package or more than one brings the kind, its code cannot be imported, or its entry point
                names an object of the wrong class.
        """
        if kind not in self._config_of_kind:
            self._config_of_kind[kind] = self._config_of(kind, load_installed(kind, self._group, "kind").value)
        return self._config_of_kind[kind]

    def can_read(self, kind: str) -> bool:
        """Returns whether the configuration class of a kind can be loaded; validation reports why it cannot."""
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
        # A package that cannot be imported is reported by validation, once a table names its kind.
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
    """Returns the errors inside an error, with their whole locations.

    Args:
        details: the details of an error from pydantic.
    """
    if details["type"] != NESTED:
        return [details]
    inside: list[ErrorDetails] = details.get("ctx", {})["errors"]
    located: list[Any] = [{**inner, "loc": (*details["loc"], *inner["loc"])} for inner in inside]
    return [error for inner in located for error in flat(inner)]
