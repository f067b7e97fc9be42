"""The JSON schema of a configuration, for editors that complete and check TOML and JSON."""

from __future__ import annotations

import inspect
import re
from typing import Any

from pydantic import BaseModel

_ARGUMENT = re.compile(r"^ {4}(\w+)(?: \([^)]*\))?: (.*(?:\n {5,}\S.*)*)", re.MULTILINE)


def json_schema(model: type[BaseModel], title: str | None = None) -> dict[str, Any]:
    """Returns the JSON schema of `model` for editors.

    The first line of each class's docstring becomes the description of its table, and the text of each argument becomes
    the description of its key.

    Args:
        title: the title of the whole schema; unset takes the class's name.

    Returns:
        a JSON schema, draft 2020-12.

    Example:
        >>> from groupwise.config import Config
        >>> class Clip(Config):
        ...     '''A clipped ratio.
        ...
        ...     Args:
        ...         low: how far below one.
        ...     '''
        ...
        ...     low: float = 0.2
        >>> json_schema(Clip)["properties"]["low"]["description"]
        'how far below one.'
    """
    schema = model.model_json_schema()
    schema["title"] = title or model.__name__
    for table in [schema, *schema.get("$defs", {}).values()]:
        _describe(table)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _describe(table: dict[str, Any]) -> None:
    text = inspect.cleandoc(table.get("description", ""))
    if not text:
        return
    table["description"] = text.partition("\n\n")[0].replace("\n", " ")
    arguments = re.search(r"^Args:\n((?: {4,}.*\n?|\n)*)", text, re.MULTILINE)
    if arguments is None:
        return
    for name, description in _ARGUMENT.findall(arguments.group(1)):
        if name in table.get("properties", {}):
            table["properties"][name].setdefault("description", " ".join(description.split()))
