"""A trust region of your own: any class with `scope` and a call, by import path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal, Protocol, cast, final, runtime_checkable

from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from groupwise.config import Config, ConfigError, ImportPath, InModule, may_run, user_class, validate
from groupwise.objective.decisions import Decisions, Surrogate

_SCOPES = ("decision", "member", "batch")


@runtime_checkable
class Region(Protocol):
    """What the class at `path` makes: `scope` says how much one term reads, `decision`, `member` or `batch`."""

    scope: ClassVar[str]

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        """`S` and which decisions are alive, `[B, T]` both."""
        ...


@final
class CallableRegion(Config):
    """The region that the class at `path` makes, built with `settings`.

    A class that is a `groupwise.config.Config` has its settings validated like ours; any other class is called with
    them. It states `scope` and, where they apply, the class variables `reads`, `discrete_only`, `score_function` and
    `whole_member`, as the regions beside this file do.

    Example:
        >>> CallableRegion(path="groupwise.objective.trust.gaussian:Gaussian", settings={"sigma": 0.3}).region
        Gaussian(kind='gaussian', sigma=0.3)

    Raises:
        ConfigError: there is no such class, it does not take the settings, or what it makes is no region.
    """

    kind: Literal["callable"] = "callable"
    path: InModule
    """`package.module:Class`; the module may lie in the working directory."""
    settings: Mapping[str, Any] = Field(default_factory=dict)
    """What the class is built with."""

    @model_validator(mode="after")
    def _usable(self) -> CallableRegion:
        _ = self.region
        return self

    @property
    def region(self) -> Region:
        """What is asked."""
        return (
            _UNREAD
            if not may_run(self.path)
            else _made(self.path, user_class(self.path), json.dumps(dict(self.settings), sort_keys=True))
        )

    @property
    def scope(self) -> str:
        """How much one term reads."""
        return self.region.scope

    @property
    def reads(self) -> tuple[str, ...]:
        """The optional fields it reads."""
        return tuple(getattr(self.region, "reads", ()))

    @property
    def discrete_only(self) -> str | None:
        """What to write instead where decisions are densities; `None` where they are served."""
        return getattr(self.region, "discrete_only", None)

    @property
    def score_function(self) -> bool:
        """Whether its gradient is a detached weight times that of the log-prob."""
        return getattr(self.region, "score_function", False)

    @property
    def whole_member(self) -> bool:
        """Whether it takes one advantage a member."""
        return getattr(self.region, "whole_member", False)

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        return self.region(log_ratio, decisions)


@final
class _Unread:
    """What stands for a class that may not be imported, while a configuration is only read: it refuses nothing and
    computes nothing.
    """

    scope: ClassVar[str] = "decision"
    score_function: ClassVar[bool] = True

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        raise AssertionError("a configuration that is only read computes nothing")


_UNREAD = _Unread()


@lru_cache(maxsize=64)
def _made(path: ImportPath, found: type[Any], settings: str) -> Region:
    given = json.loads(settings)
    try:
        made: Any = validate(found, given) if issubclass(found, Config) else found(**given)
    except ConfigError as error:
        raise ValueError("; ".join(f"settings.{problem}" for problem in error.problems)) from None
    except TypeError as error:
        raise ValueError(f"path = {path!r} does not take settings = {given}: {error}") from error
    if not callable(made):
        raise ValueError(
            f"path = {path!r} makes a {found.__name__} that cannot be called; it needs __call__(log_ratio, decisions)"
            " -> Surrogate"
        )
    if getattr(made, "scope", None) not in _SCOPES:
        raise ValueError(
            f"path = {path!r}: scope is {getattr(made, 'scope', None)!r}; state how much one term reads, scope ="
            f" {', '.join(map(repr, _SCOPES))}"
        )
    return cast(Region, made)
