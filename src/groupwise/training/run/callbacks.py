"""A user's functions, called after every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from groupwise.config import ConfigError, ImportPath, is_object, raised_at, user_module

Callback = Callable[[int, Mapping[str, float]], object]


def load_callbacks(paths: Sequence[ImportPath]) -> list[Callback]:
    """Imports functions by import path, `package.module:function`; a module may lie in the working directory.

    Args:
        paths: import paths, `package.module:function`.

    Returns:
        the functions, in order; an error that one raises is raised again with the function's path in the message.

    Raises:
        ConfigError: a module or function does not exist, or the object cannot be called.

    Example:
        >>> [function(1, {}) for function in load_callbacks([ImportPath("builtins:max")])]  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: train.callbacks: "builtins:max" raised TypeError: ...; mend it, and go on with `groupwise resume`
    """
    callbacks: list[Callback] = []
    for path in paths:
        try:
            function = getattr(user_module(path), path.name)
        # A user's module may fail in any way while it is imported.
        except Exception as error:
            if is_object(path):
                raise
            message = f'train.callbacks: "{path}" cannot be imported: {type(error).__name__}: {error}'
            raise ConfigError(f"{message}; it must be installed or lie in the working directory") from error
        if not callable(function):
            raise ConfigError(
                f'train.callbacks: "{path}" is a {type(function).__name__}, which cannot be called; name a function'
            )
        callbacks.append(_with_path_in_errors(path, function))
    return callbacks


def _with_path_in_errors(path: str, function: Callback) -> Callback:
    def call(step: int, metrics: Mapping[str, float]) -> object:
        try:
            return function(step, metrics)
        # A user's function may fail in any way.
        except Exception as error:
            cause = f"{type(error).__name__}: {error}{raised_at(error)}"
            raise ValueError(
                f'train.callbacks: "{path}" raised {cause}; mend it, and go on with `groupwise resume`'
            ) from error

    return call
