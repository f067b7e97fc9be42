"""A user's class in the place of a shipped kind: `kind = "callable"`, `path = "module:Class"`, `settings`."""

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
    """A place for a user's class among the kinds of one base: the class at `path`, built from `settings`.

    A subclass names the base in `base`. Every public member of the base (class variables, settings, methods, the call)
    is answered by the object of the user's class.

    Raises:
        ConfigError: the class does not exist, does not extend the base, lacks a method, lacks a class variable that the
            base asks for, or refuses the settings.
    """

    base: ClassVar[type[Config]]
    stated: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Class variables that a class has to state -> the allowed values."""
    unread: ClassVar[Mapping[str, Any]] = {}
    """Class variables of the object that replaces the user's where its code may not run: a configuration that is only
    read refuses nothing.
    """

    kind: Literal["callable"] = "callable"
    path: InModule
    """`package.module:Class`; the module may lie in the working directory."""
    settings: Mapping[str, Any] = Field(default_factory=dict)
    """The settings of the class, validated by its fields."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Adds a property for every public member of the base, which returns that of the user's object."""
        names = set(dir(cls.base)) | set(cls.base.model_fields)
        overridden = {name for ancestor in cls.__mro__ if issubclass(ancestor, FromPath) for name in vars(ancestor)}
        for name in sorted(names - _PYDANTIC - set(FromPath.model_fields) - overridden):
            if not name.startswith("_"):
                setattr(cls, name, _piece_member(name))
        update_abstractmethods(cls)

    @model_validator(mode="after")
    def _usable(self) -> FromPath:
        _ = self.piece
        return self

    @property
    def piece(self) -> Any:
        """The user's object; where its code may not run, an object that computes nothing."""
        if not may_run(self.path):
            return _stand_in(type(self))
        return _build_piece(
            type(self), self.path, user_class(self.path), json.dumps(dict(self.settings), sort_keys=True)
        )

    def __call__(self, *arguments: Any) -> Any:
        return self.piece(*arguments)


def _piece_member(name: str) -> property:
    return property(lambda config: getattr(config.piece, name))


@lru_cache(maxsize=64)
def _stand_in(place: type[FromPath]) -> Config:
    abstract = getattr(place.base, "__abstractmethods__", frozenset())
    members = dict.fromkeys(abstract, _computes_nothing) | dict(place.unread) | {"__module__": __name__}
    return type(f"Unread{place.base.__name__}", (place.base,), members)()


def _computes_nothing(*arguments: Any, **keywords: Any) -> Any:
    raise AssertionError("a configuration that is only read computes nothing")


@lru_cache(maxsize=256)
def _build_piece(place: type[FromPath], path: ImportPath, piece_class: type[Any], settings: str) -> Config:
    """Builds the user's object, once for the same class and settings."""
    base = place.base
    if not issubclass(piece_class, base):
        raise ValueError(
            f"path = {str(path)!r}: {piece_class.__name__} is no {base.__name__}; write"
            f" class {piece_class.__name__}({base.__name__}), from {base.__module__}"
        )
    if missing := sorted(getattr(piece_class, "__abstractmethods__", ())):
        raise ValueError(
            f"path = {str(path)!r}: {piece_class.__name__} lacks {', '.join(missing)}, which {base.__name__} asks for"
        )
    for name, allowed in place.stated.items():
        value = (
            getattr(piece_class, name)
            if any(name in vars(ancestor) for ancestor in _added(piece_class, base))
            else None
        )
        if value not in allowed and not isinstance(value, property):
            complaint = "states no" if value is None else f"says {value!r} as its"
            raise ValueError(
                f"path = {str(path)!r}: {piece_class.__name__} {complaint} {name}; write {name}: ClassVar[str] ="
                f" {' or '.join(repr(word) for word in allowed)} in the class"
            )
    try:
        return validate(piece_class, json.loads(settings))
    except ConfigError as error:
        raise ValueError("; ".join(f"settings.{problem}" for problem in error.problems)) from None


def _added(piece_class: type[Any], base: type[Any]) -> list[type[Any]]:
    """Returns the classes that a user's class is made of beyond the base."""
    return [ancestor for ancestor in piece_class.__mro__ if ancestor not in base.__mro__]


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
