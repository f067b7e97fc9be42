"""The JSON schema of a configuration, for editors that complete and check TOML and JSON."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

_ARGUMENT = re.compile(r"^ {4}(\w+)(?: \([^)]*\))?: (.*(?:\n {5,}\S.*)*)", re.MULTILINE)


def json_schema(model: type[BaseModel], title: str | None = None) -> dict[str, Any]:
    """Returns the JSON schema of `model` for editors.

    The first line of each class's docstring becomes the description of its table. The docstring below an attribute, or
    the text of its argument, becomes the description of its key.

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
    schema = model.model_json_schema(schema_generator=_WithAttributeDocs)
    schema["title"] = title or model.__name__
    for table in [schema, *schema.get("$defs", {}).values()]:
        _describe(table)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def attribute_docs(model: type[BaseModel]) -> dict[str, str]:
    """Reads the docstrings below the attributes of a class and its bases from their source.

    pydantic would read them when a class is made, which takes longer than all else at the start of the command.

    Returns:
        attribute -> docstring; nothing of a class whose source cannot be read.

    Example:
        >>> from groupwise.objective import Objective
        >>> attribute_docs(Objective)["name"]
        'The name of the preset, with `+edited` where a key was changed.'
    """
    docs: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if cls is BaseModel or not issubclass(cls, BaseModel):
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        except (OSError, TypeError, SyntaxError):
            continue
        assert isinstance(body, ast.ClassDef)
        for statement, below in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                docs[statement.target.id] = inspect.cleandoc(below.value.value)
    return docs


class _WithAttributeDocs(GenerateJsonSchema):
    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        table = super().model_schema(schema)
        for name, text in attribute_docs(schema["cls"]).items():
            if name in table.get("properties", {}):
                table["properties"][name].setdefault("description", text)
        return table


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
