"""A user's code in the place of a shipped kind: `kind = "callable"`, `path`, and what it is configured by."""

import inspect
from abc import update_abstractmethods
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, final

from pydantic import Field, ValidationInfo, field_validator

from groupwise.config.base import Config
from groupwise.config.errors import ConfigError, Problem, nearest
from groupwise.config.import_path import ImportPath, InModule, may_run, require_open, user_module, why_failed
from groupwise.config.open_kinds import load_installed
from groupwise.config.validation import validate
from groupwise.processes import is_out_of_memory

# Loading, checking and calling the functions and classes that a configuration names.

_MOST = 12
"""The most names that an error lists."""


def user_object(path: ImportPath, key: str = "path", *, group: str = "") -> Any:
    """Loads the object of an import path.

    Args:
        path: `package.module:name`, or the name of an entry point of `group`.
        key: what an error calls the setting.
        group: the group of entry points that the key serves; none by default.

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
        group: the group of entry points that the key serves.
        write: what an error asks for, such as `a function f(step, metrics)`.

    Raises:
        ConfigError: see `user_object`; or the object cannot be called.

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
        ConfigError: see `user_object`; or the object is not a class, or a class that does not extend the base.

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
    """Checks that a user's class extends a base and has all that the base leaves to it.

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
    """Refuses arguments that a user's function does not take, before it is called.

    Args:
        function: without a signature, as some functions of C have none, it is not checked.
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
    """Calls a user's function, or makes an object of a user's class.

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
    # User code may raise anything.
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
    # Importing a user's module may raise anything, SystemExit included.
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
    """Lists the members that a module or class defines, and those that a package imports from its own modules. Other
    imports are left out.
    """
    home = getattr(holder, "__module__", None) or getattr(holder, "__name__", None)
    return sorted(
        member
        for member, value in getattr(holder, "__dict__", {}).items()
        # A classmethod object in `__dict__` is not callable itself.
        if not member.startswith("_")
        and listed(getattr(value, "__func__", value))
        and f"{getattr(value, '__module__', home)}.".startswith(f"{home}.")
    )


_CONFIG_NAMES = frozenset(dir(Config))


class FromPath(Config):
    """The class at `path` with the settings that it validates.

    A subclass says in `settings_class` which classes are allowed here and what validates their settings. Both are
    checked when the configuration is read. Afterwards every setting is stated, so that `config.json` is complete. Where
    the code may not run (`restrict_code`), nothing is imported and nothing is checked.

    Raises:
        ConfigError: there is no such class, it cannot be used here, or it does not take the settings.
    """

    kind: Literal["callable"] = "callable"
    path: InModule
    """`package.module:Class`; the module may be in the working directory."""
    settings: Mapping[str, Any] = Field(default_factory=dict, validate_default=True)
    """The settings of the class, validated by its fields."""

    @classmethod
    def settings_class(cls, path: ImportPath) -> type[Config]:
        """Returns the class that validates the settings of the class at a path.

        Raises:
            ConfigError: the class cannot be used here.
        """
        raise NotImplementedError

    @classmethod
    def instead_of_unknown(cls, key: str, place: str, table: Mapping[str, Any]) -> str:
        """Returns where the settings of the user's class are."""
        return f"the settings of {table.get('path')} stand in {place}.settings; write {place}.settings.{key}"

    @field_validator("path")
    @classmethod
    def _may_stand_here(cls, path: ImportPath) -> ImportPath:
        if may_run(path):
            cls.settings_class(path)
        return path

    @field_validator("settings")
    @classmethod
    def _complete(cls, settings: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        path = info.data.get("path")
        if path is None or not may_run(path):
            return settings
        return _validated(cls.settings_class(path), settings).model_dump(mode="json")

    @cached_property
    def validated_settings(self) -> Config:
        """The settings as the user's own class has them."""
        return _validated(self.settings_class(self.path), self.settings)


def _validated(settings_class: type[Config], settings: Mapping[str, Any]) -> Config:
    try:
        return validate(settings_class, settings)
    except ConfigError as error:
        problems = [replace(problem, path=f"settings.{problem.path}".strip(".")) for problem in error.problems]
        raise ConfigError(problems) from None


@final
class PieceError(ValueError):
    """A call of a user's object that raised (its cause), or that returned something else than it should.

    Args:
        message: the path and what is wrong.
        result: what the call returned; None where it raised.
    """

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class PieceFromPath(FromPath):
    """A configured object of the class at `path`, in a place where kinds of one base are allowed.

    A subclass names that base in `base`. Every public member of the base (class variables, settings, methods, the call)
    is answered by the object of the user's class.

    Raises:
        ConfigError: as in `FromPath`; the class does not extend the base, lacks a method, or states no value that the
            base asks for.
    """

    base: ClassVar[type[Config]]
    stated: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Class variables that a class has to state -> the allowed values."""
    unread: ClassVar[Mapping[str, Any]] = {}
    """Class variables of the object that replaces the user's where its code may not run. A configuration that is only
    read must refuse nothing.
    """

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Adds a property for every public member of the base. The property returns the member of the user's object."""
        names = set(dir(cls.base)) | set(cls.base.model_fields)
        overridden = {name for ancestor in cls.__mro__ if issubclass(ancestor, FromPath) for name in vars(ancestor)}
        for name in sorted(names - _CONFIG_NAMES - set(FromPath.model_fields) - overridden):
            if not name.startswith("_"):
                setattr(cls, name, _piece_member(name))
        update_abstractmethods(cls)

    @classmethod
    def settings_class(cls, path: ImportPath) -> type[Config]:
        """Returns the user's class itself: a piece is its own configuration."""
        piece_class = user_class(path, cls.base)
        for name, allowed in cls.stated.items():
            _check_stated(piece_class, cls.base, name, allowed, path)
        return piece_class

    @property
    def piece(self) -> Any:
        """The user's object; where its code may not run, one that computes nothing."""
        return self.validated_settings if may_run(self.path) else _stand_in(type(self))

    def __call__(self, *arguments: Any) -> Any:
        return self.called("__call__", *arguments, problem_of=lambda result: self.result_problem(result, *arguments))

    def called(self, name: str, *arguments: Any, problem_of: Callable[[Any], str] | None = None) -> Any:
        """Calls a method of the user's object.

        Args:
            name: the name of the method.
            problem_of: function that describes what is wrong with the result, if anything is.

        Raises:
            PieceError: the method raised, or returned something else. A `ConfigError` and a lack of memory are passed
                on as they are.
        """
        try:
            result = getattr(self.piece, name)(*arguments)
        except ConfigError:
            raise
        # A user's code may raise anything. A lack of memory is passed on, since the caller then takes smaller batches.
        except Exception as error:
            if is_out_of_memory(error) or not may_run(self.path):
                raise
            raise PieceError(f"path = {str(self.path)!r}: {name} raised {why_failed(error)}") from error
        if problem_of is not None and (problem := problem_of(result)):
            raise PieceError(f"path = {str(self.path)!r}: {problem} (see {self.base.__name__})", result)
        return result

    def result_problem(self, result: Any, *arguments: Any) -> str:
        """Returns what is wrong with the result of a call; by default nothing.

        Args:
            result: what the user's object returned.
            arguments: what it was called with.
        """
        return ""


def _piece_member(name: str) -> property:
    return property(lambda config: getattr(config.piece, name))


@lru_cache(maxsize=64)
def _stand_in(place: type[PieceFromPath]) -> Config:
    abstract = getattr(place.base, "__abstractmethods__", frozenset())
    members = dict.fromkeys(abstract, _computes_nothing) | dict(place.unread) | {"__module__": __name__}
    return type(f"Unread{place.base.__name__}", (place.base,), members)()


def _computes_nothing(*arguments: Any, **options: Any) -> Any:
    raise AssertionError("a configuration that is only read computes nothing")


def _check_stated(
    piece_class: type[Any], base: type[Any], name: str, allowed: tuple[str, ...], path: ImportPath
) -> None:
    """Refuses a class that inherits a class variable from the base instead of stating it, or states a value that is not
    allowed.
    """
    is_stated = any(name in vars(ancestor) for ancestor in piece_class.__mro__ if ancestor not in base.__mro__)
    value = getattr(piece_class, name) if is_stated else None
    if value not in allowed and not isinstance(value, property):
        verb = "states no" if value is None else f"says {value!r} as its"
        values = " or ".join(map(repr, allowed))
        message = f"{piece_class.__name__} {verb} {name}; write {name}: ClassVar[str] = {values} in the class"
        raise ConfigError(Problem(f"path = {str(path)!r}", message))


class CalledFromPath(Config):
    """The object that the function or class at `path` returns for `arguments`, which only its signature checks."""

    kind: Literal["callable"] = "callable"
    path: InModule
    """`package.module:name` of a class, or of a function that makes an object; the module may be in the working
    directory.
    """
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    """Arguments of the class or function, by name."""

    @classmethod
    def instead_of_unknown(cls, key: str, place: str, table: Mapping[str, Any]) -> str:
        """Returns where the arguments of the function or class are."""
        return f"the arguments of {table.get('path')} stand in {place}.arguments; write {place}.arguments.{key}"

    def made(self, base: type[Any], wanted: str, key: str) -> Any:
        """Calls the function or class, and checks what it made.

        Args:
            base: the class, or the protocol that can be checked at run time, of what it has to make.
            wanted: the base in words, for errors.
            key: the key of the path, for errors.

        Raises:
            ConfigError: it cannot be loaded, does not take the arguments, fails, or makes something else.
        """
        place = f"{key} = {str(self.path)!r}"
        product = call_user(user_callable(self.path, key, write="a class"), self.arguments, place)
        if isinstance(product, type) or not isinstance(product, base):
            described = f"the class {product.__name__}" if isinstance(product, type) else f"a {type(product).__name__}"
            raise ConfigError(Problem(place, f"it makes {described}; it has to make {wanted}"))
        return product


def same_kind(left: Config, right: Config) -> bool:
    """Returns whether two configured pieces are of one kind; for two user's pieces, whether they are of one class.

    Example:
        >>> from groupwise.schedule import Constant, Linear
        >>> (
        ...     same_kind(Constant(value=1.0), Constant(value=2.0)),
        ...     same_kind(Constant(value=1.0), Linear(start=1.0, end=0.0, num_steps=2)),
        ... )
        (True, False)
    """
    paths = [config.path if isinstance(config, FromPath) else "" for config in (left, right)]
    return type(left) is type(right) and paths[0] == paths[1]
