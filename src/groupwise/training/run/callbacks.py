"""A user's functions, called after every step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

from groupwise.config import ConfigError, ImportPath, user_callable, why_failed

Callback = Callable[[int, Mapping[str, float]], object]


def load_callbacks(paths: Sequence[ImportPath]) -> list[Callback]:
    """Imports functions by import path, `package.module:function`; a module may lie in the working directory.

    Args:
        paths: import paths, `package.module:function`.

    Returns:
        the functions, in order; an error that one raises is raised again with the function's path in the message.

    Raises:
        ConfigError: a module or function does not exist, or the object cannot be called with a step and metrics.

    Example:
        >>> [function(1, {}) for function in load_callbacks([ImportPath("builtins:max")])]  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: train.callbacks: "builtins:max" raised TypeError: ...; mend it, and go on with `groupwise resume`
    """
    write = "a function f(step, metrics)"
    functions = [user_callable(path, "train.callbacks", write=write) for path in paths]
    for path, function in zip(paths, functions, strict=True):
        _check_signature(path, function)
    return [_with_path_in_errors(path, function) for path, function in zip(paths, functions, strict=True)]


def _check_signature(path: str, function: Callback) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:
        # Some functions of C have no signature; their call tells.
        return
    try:
        signature.bind(0, {})
    except TypeError as error:
        raise ConfigError(
            f'train.callbacks: "{path}" is called as f(step, metrics), and its signature is {signature}: {error}'
        ) from error


def _with_path_in_errors(path: str, function: Callback) -> Callback:
    def call(step: int, metrics: Mapping[str, float]) -> object:
        try:
            return function(step, metrics)
        # A user's function may fail in any way.
        except Exception as error:
            raise ValueError(
                f'train.callbacks: "{path}" raised {why_failed(error)}; mend it, and go on with `groupwise resume`'
            ) from error

    return call
