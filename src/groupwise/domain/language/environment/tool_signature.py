"""A Python function as a tool: the JSON schema that a chat template shows, and the check of a call's arguments."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, final, get_type_hints

from pydantic import TypeAdapter, ValidationError

from groupwise.config import ConfigError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@final
class ToolSignature:
    """The name, schema and parameters of a function that a policy may call.

    The schema is what `transformers.utils.get_json_schema` reads from the signature and the docstring. Arguments are
    checked strictly against the type hints: a text is no number.

    Args:
        function: has a docstring, and for every parameter a type hint and a line under `Args:`.
        place: the key and its value, for errors.

    Raises:
        ConfigError: the function cannot be described.

    Example:
        >>> def add(a: int, b: int = 1) -> int:
        ...     '''Adds two numbers.
        ...
        ...     Args:
        ...         a: the first.
        ...         b: the second.
        ...     '''
        ...     return a + b
        >>> signature = ToolSignature(add, "tools")
        >>> signature.name, signature.schema["function"]["parameters"]["required"]
        ('add', ['a'])
        >>> signature.read({"a": 2}), signature.read({"a": "2"}), signature.read({"c": 2})
        (({'a': 2}, ''), ({}, 'a: Input should be a valid integer'), ({}, 'add has no argument c; it has a, b'))
    """

    def __init__(self, function: Callable[..., Any], place: str) -> None:
        from transformers.utils.chat_template_utils import get_json_schema

        self.function = function
        advice = "write a docstring, and for every parameter a type hint and a line under Args:"
        try:
            parameters = inspect.signature(function).parameters
            self.schema: dict[str, Any] = get_json_schema(function)
        # A stranger's function may have no signature, and annotations of any kind.
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise ConfigError(f"{place}: it cannot be described as a tool: {reason}; {advice}") from error
        unfit = [str(parameter) for parameter in parameters.values() if parameter.kind in _POSITIONAL]
        if unfit:
            raise ConfigError(
                f"{place}: a call gives arguments by name, and {', '.join(unfit)} cannot be named; write ordinary"
                " parameters"
            )
        self.name: str = self.schema["function"]["name"]
        self.parameters = {
            name: parameters[name] for name in self.schema["function"]["parameters"].get("properties", {})
        }

    def read(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Converts the JSON arguments of a call to those of the function.

        Args:
            arguments: by name, as JSON gave them.

        Returns:
            the arguments and an empty text, or no arguments and the reason in one line.
        """
        values: dict[str, Any] = {}
        for name, value in arguments.items():
            if name not in self.parameters:
                return {}, f"{self.name} has no argument {name}; it has {', '.join(self.parameters) or 'none'}"
            try:
                values[name] = self._adapters[name].validate_json(json.dumps(value), strict=True)
            except ValidationError as error:
                return {}, f"{name}: {error.errors()[0]['msg']}"
            except RecursionError:
                return {}, f"{name}: it is nested too deeply"
        for name, parameter in self.parameters.items():
            if name not in arguments and parameter.default is inspect.Parameter.empty:
                return {}, f"{self.name} needs the argument {name}"
        return values, ""

    @cached_property
    def _adapters(self) -> dict[str, TypeAdapter[Any]]:
        hints = get_type_hints(self.function)
        return {name: TypeAdapter(hints[name]) for name in self.parameters}
