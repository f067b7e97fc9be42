"""A user's functions, called after every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from groupwise.config import ConfigError, ImportPath, is_object, raised_at, user_module

Callback = Callable[[int, Mapping[str, float]], object]


def load_callbacks(paths: Sequence[ImportPath]) -> list[Callback]:
    """Functions by import path, `package.module:function`; a module may lie in the working directory.

    Args:
        paths: `package.module:function`, each.

    Returns:
        the functions, in order; what one raises is named with its path.

    Raises:
        ConfigError: no such module or function, or it cannot be called.

    Example:
        >>> [function(1, {}) for function in load_callbacks([ImportPath("builtins:max")])]  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: train.callbacks: "builtins:max" raised TypeError: ...; mend it, and go on with `groupwise resume`
    """
    found: list[Callback] = []
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
        found.append(_named(path, function))
    return found


def _named(path: str, function: Callback) -> Callback:
    def call(step: int, metrics: Mapping[str, float]) -> object:
        try:
            return function(step, metrics)
        # It is the user's and may fail in any way.
        except Exception as error:
            what = f"{type(error).__name__}: {error}{raised_at(error)}"
            raise ValueError(
                f'train.callbacks: "{path}" raised {what}; mend it, and go on with `groupwise resume`'
            ) from error

    return call
