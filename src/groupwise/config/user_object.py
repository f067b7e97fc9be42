"""A stranger's functions and classes, as a configuration names them: loaded, checked and called in one way."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from groupwise.config.entry_points import load_installed
from groupwise.config.errors import ConfigError, Problem, nearest
from groupwise.config.import_path import ImportPath
from groupwise.config.user_module import require_open, user_module, why_failed

_MOST = 12
"""Names that an error lists."""


def user_object(path: ImportPath, key: str = "path", *, group: str = "") -> Any:
    """Loads the object of an import path.

    Args:
        path: `package.module:name`, or the name of an entry point of `group`.
        key: what an error calls the setting.
        group: of entry points that the key serves; none by default.

    Raises:
        ConfigError: the code may not run here, the module cannot be imported, or there is no such name.

    Example:
        >>> user_object(ImportPath("math:pi"))
        3.141592653589793
        >>> user_object(ImportPath("colorsys:rgb_to_hvs"), "train.callbacks")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: train.callbacks = 'colorsys:rgb_to_hvs': 'colorsys' has no 'rgb_to_hvs'; it has hls_to_rgb, hsv_to_rgb, rgb_to_hls, rgb_to_hsv, rgb_to_yiq, yiq_to_rgb; did you mean rgb_to_hsv?
    """  # noqa: E501
    return _load(path, key, group, callable)


def user_callable(path: ImportPath, key: str = "path", *, group: str = "", write: str = "a function") -> Any:
    """Loads the function or class of an import path.

    Args:
        path: `package.module:name`, or the name of an entry point of `group`.
        key: what an error calls the setting.
        group: of entry points that the key serves.
        write: what an error asks for, such as `a function f(step, metrics)`.

    Raises:
        ConfigError: as of `user_object`, or what stands there cannot be called.

    Example:
        >>> user_callable(ImportPath("math:sqrt"))(4.0)
        2.0
        >>> user_callable(ImportPath("math:pi"), "train.callbacks")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: train.callbacks = 'math:pi': it is of type float and cannot be called; name a function
    """  # noqa: E501
    loaded = _load(path, key, group, callable)
    if not callable(loaded):
        message = f"it is of type {type(loaded).__name__} and cannot be called; name {write}"
        raise ConfigError(Problem(_place(path, key), message))
    return loaded


def user_class(path: ImportPath, base: type[Any] | None = None, key: str = "path", *, name: str = "") -> type[Any]:
    """Loads the class of an import path.

    Args:
        path: `package.module:Class`.
        base: the class that it has to extend, with all abstract members written.
        key: what an error calls the setting.
        name: by which an author imports the base; its module and name by default.

    Raises:
        ConfigError: as of `user_object`, or no class stands there, or one that does not extend the base.

    Example:
        >>> user_class(ImportPath("fractions:Fraction")).__name__
        'Fraction'
        >>> user_class(ImportPath("fractions:Fractoin"))
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: path = 'fractions:Fractoin': 'fractions' has no class 'Fractoin'; it has Fraction; did you mean Fraction?
    """  # noqa: E501
    loaded = _load(path, key, "", inspect.isclass)
    if not inspect.isclass(loaded):
        message = f"it is of type {type(loaded).__name__} and no class; name a class"
        raise ConfigError(Problem(_place(path, key), message))
    return loaded if base is None else check_class(loaded, base, _place(path, key), name=name)


def check_class(loaded: Any, base: type[Any], place: str, *, name: str = "") -> type[Any]:
    """Checks that a stranger's class extends a base and has all that the base leaves to it.

    Args:
        loaded: what an import path or an entry point names.
        base: the class to extend.
        place: the key and its value, for errors.
        name: by which an author imports the base; its module and name by default.

    Returns:
        the class.

    Raises:
        ConfigError: it is no such class, or lacks abstract members.

    Example:
        >>> from collections.abc import Sized
        >>> check_class(list, Sized, "path = 'builtins:list'").__name__
        'list'
        >>> check_class(int, Sized, "path = 'builtins:int'")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: path = 'builtins:int': int does not extend collections.abc.Sized; write class int(collections.abc.Sized)
    """  # noqa: E501
    name = name or f"{base.__module__}.{base.__qualname__}"
    if not (inspect.isclass(loaded) and issubclass(loaded, base)):
        described = getattr(loaded, "__name__", repr(loaded))
        message = f"{described} does not extend {name}; write class {described}({name})"
        raise ConfigError(Problem(place, message))
    if missing := sorted(getattr(loaded, "__abstractmethods__", ())):
        message = f"{loaded.__name__} lacks {', '.join(missing)}; {name} says what each of them is given and returns"
        raise ConfigError(Problem(place, message))
    return loaded


def check_arguments(function: Callable[..., Any], arguments: Mapping[str, Any], place: str, *, all_of: bool) -> None:
    """Refuses arguments that a stranger's function does not take, before it is called.

    Args:
        function: it may have no signature, as some of C have none; its call then tells.
        arguments: by name.
        place: the key and its value, for errors.
        all_of: whether these are all the arguments; otherwise more will be given with each call.

    Raises:
        ConfigError: an argument has no parameter, or a parameter no argument.

    Example:
        >>> check_arguments(lambda word: word, {"letter": "a"}, "path = 'mine:f'", all_of=True)
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: path = 'mine:f': it does not take arguments = {'letter': 'a'}: missing a required argument: 'word'
    """  # noqa: E501
    try:
        signature = inspect.signature(function)
    except ValueError:
        return
    try:
        (signature.bind if all_of else signature.bind_partial)(**arguments)
    except TypeError as error:
        message = f"it does not take arguments = {dict(arguments)}: {error}"
        raise ConfigError(Problem(place, message)) from error


def call_user(function: Callable[..., Any], arguments: Mapping[str, Any], place: str) -> Any:
    """Calls a stranger's function, or makes an object of a stranger's class.

    Args:
        function: the function or class.
        arguments: all its arguments, by name.
        place: the key and its value, for errors.

    Raises:
        ConfigError: it does not take the arguments, or fails.

    Example:
        >>> call_user(int, {}, "path = 'builtins:int'")
        0
    """
    check_arguments(function, arguments, place, all_of=True)
    try:
        return function(**arguments)
    except ConfigError:
        raise
    # A stranger's code may fail in any way.
    except Exception as error:
        called = getattr(function, "__name__", type(function).__name__)
        message = f"{called}({', '.join(f'{name}={value!r}' for name, value in arguments.items())}) failed"
        raise ConfigError(Problem(place, f"{message}: {why_failed(error)}")) from error


def _place(path: ImportPath, key: str) -> str:
    return f"{key} = {str(path)!r}"


def _load(path: ImportPath, key: str, group: str, listed: Callable[[Any], bool]) -> Any:
    require_open(path)
    if not path.name:
        return load_installed(path, group, key).value
    try:
        loaded: Any = user_module(path)
    # A stranger's module may fail in any way while it is imported, and may end the program.
    except (Exception, SystemExit) as error:
        message = f"the module {path.module!r} cannot be imported: {why_failed(error)}"
        message += "; it must be installed or lie in the working directory"
        raise ConfigError(Problem(_place(path, key), message)) from error
    for member in path.name.split("."):
        if not hasattr(loaded, member):
            noun = "class " if listed is inspect.isclass else ""
            names = _members(loaded, listed)
            message = (
                f"{path.module!r} has no {noun}{path.name!r}; it has {', '.join(names[:_MOST]) or 'none of its own'}"
            )
            raise ConfigError(Problem(_place(path, key), message, suggestion=nearest(member, names or dir(loaded))))
        loaded = getattr(loaded, member)
    return loaded


def _members(holder: Any, listed: Callable[[Any], bool]) -> list[str]:
    """Lists what a module or class defines itself, and what a package takes from its own modules; other imports are
    left out.
    """
    home = getattr(holder, "__module__", None) or getattr(holder, "__name__", None)
    return sorted(
        member
        for member, value in getattr(holder, "__dict__", {}).items()
        # A class method is callable only through its class.
        if not member.startswith("_")
        and listed(getattr(value, "__func__", value))
        and f"{getattr(value, '__module__', home)}.".startswith(f"{home}.")
    )
