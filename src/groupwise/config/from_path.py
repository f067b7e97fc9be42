"""A class of the user's in the place of a shipped kind: `kind = "callable"`, `path = "module:Class"`, `settings`."""

from __future__ import annotations

import json
from abc import update_abstractmethods
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from groupwise.config.base import Config
from groupwise.config.errors import ConfigError
from groupwise.config.import_path import ImportPath, InModule
from groupwise.config.user_module import may_run, user_class
from groupwise.config.validation import validate

_PYDANTIC = frozenset(dir(Config))


class FromPath(Config):
    """What the class at `path` makes of `settings`, in a place where kinds of one base stand.

    A subclass names that base in `base`. It answers everything that the base publicly says (class variables, settings,
    methods, the call) as the object of the user's class does.

    Raises:
        ConfigError: there is no such class, it does not extend the base, it lacks a method, states no value that the
            base asks for, or does not take the settings.
    """

    base: ClassVar[type[Config]]
    stated: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Class variables that a class has to state, and what each may be."""
    unread: ClassVar[Mapping[str, Any]] = {}
    """What the base says where its code may not run: a configuration that is only read refuses nothing."""

    kind: Literal["callable"] = "callable"
    path: InModule
    """`package.module:Class`; the module may lie in the working directory."""
    settings: Mapping[str, Any] = Field(default_factory=dict)
    """What the class is configured by; validated as its fields say."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Lets the class answer for the user's object whatever its base publicly says."""
        names = set(dir(cls.base)) | set(cls.base.model_fields)
        written = {name for part in cls.__mro__ if issubclass(part, FromPath) for name in vars(part)}
        for name in sorted(names - _PYDANTIC - set(FromPath.model_fields) - written):
            if not name.startswith("_"):
                setattr(cls, name, _answer(name))
        update_abstractmethods(cls)

    @model_validator(mode="after")
    def _usable(self) -> FromPath:
        _ = self.piece
        return self

    @property
    def piece(self) -> Any:
        """The user's object; where its code may not run, one that computes nothing."""
        if not may_run(self.path):
            return _stand_in(type(self))
        return _made(type(self), self.path, user_class(self.path), json.dumps(dict(self.settings), sort_keys=True))

    def __call__(self, *arguments: Any) -> Any:
        return self.piece(*arguments)


def _answer(name: str) -> property:
    return property(lambda config: getattr(config.piece, name))


@lru_cache(maxsize=64)
def _stand_in(place: type[FromPath]) -> Config:
    abstract = getattr(place.base, "__abstractmethods__", frozenset())
    members = dict.fromkeys(abstract, _computes_nothing) | dict(place.unread) | {"__module__": __name__}
    return type(f"Unread{place.base.__name__}", (place.base,), members)()


def _computes_nothing(*arguments: Any, **named: Any) -> Any:
    raise AssertionError("a configuration that is only read computes nothing")


@lru_cache(maxsize=256)
def _made(place: type[FromPath], path: ImportPath, named: type[Any], settings: str) -> Config:
    """The user's object, made once for the same class and settings."""
    base = place.base
    if not issubclass(named, base):
        raise ValueError(
            f"path = {str(path)!r}: {named.__name__} is no {base.__name__}; write"
            f" class {named.__name__}({base.__name__}), from {base.__module__}"
        )
    if missing := sorted(getattr(named, "__abstractmethods__", ())):
        raise ValueError(
            f"path = {str(path)!r}: {named.__name__} lacks {', '.join(missing)}, which {base.__name__} asks for"
        )
    for name, allowed in place.stated.items():
        value = getattr(named, name) if any(name in vars(part) for part in _added(named, base)) else None
        if value not in allowed and not isinstance(value, property):
            said = "states no" if value is None else f"says {value!r} as its"
            raise ValueError(
                f"path = {str(path)!r}: {named.__name__} {said} {name}; write {name}: ClassVar[str] ="
                f" {' or '.join(repr(word) for word in allowed)} in the class"
            )
    try:
        return validate(named, json.loads(settings))
    except ConfigError as error:
        raise ValueError("; ".join(f"settings.{problem}" for problem in error.problems)) from None


def _added(named: type[Any], base: type[Any]) -> list[type[Any]]:
    """Returns the classes that a user's class is made of beyond the base."""
    return [part for part in named.__mro__ if part not in base.__mro__]


def same_kind(first: Config, second: Config) -> bool:
    """Tells whether two configured pieces are of one kind; two of the user's, whether they are of one class.

    Example:
        >>> from groupwise.schedule import Constant, Linear
        >>> (
        ...     same_kind(Constant(value=1.0), Constant(value=2.0)),
        ...     same_kind(Constant(value=1.0), Linear(start=1.0, end=0.0, num_steps=2)),
        ... )
        (True, False)
    """
    paths = [config.path if isinstance(config, FromPath) else "" for config in (first, second)]
    return type(first) is type(second) and paths[0] == paths[1]
