"""A user's functions, called after every step."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence

from groupwise.config import ConfigError

Callback = Callable[[int, Mapping[str, float]], object]


def load_callbacks(paths: Sequence[str]) -> list[Callback]:
    """Functions by import path, `package.module:function`.

    Raises:
        ConfigError: no such module or function, or it cannot be called.

    Example:
        >>> [function.__name__ for function in load_callbacks(["operator:add"])]
        ['add']
    """
    found: list[Callback] = []
    for path in paths:
        module, colon, name = path.partition(":")
        if not colon or not name:
            raise ConfigError(f'train.callbacks: "{path}" is not an import path; write "package.module:function"')
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f'train.callbacks: "{path}" cannot be imported: {error}') from error
        if not callable(function):
            raise ConfigError(f'train.callbacks: "{path}" is a {type(function).__name__}, which cannot be called; name a function')
        found.append(function)
    return found
