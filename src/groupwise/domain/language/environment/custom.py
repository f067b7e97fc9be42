"""An environment of your own: any class with `reset` and `step`, by import path."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Literal, final

from pydantic import Field

from groupwise.config import ConfigError, ImportPath
from groupwise.domain.language.environment.base import Environment, EnvironmentKind, Step
from groupwise.reward.callable import find


@final
class Custom(EnvironmentKind):
    """`path` names a class (or function) that makes one conversation a member: `reset(columns) -> str` and `step(text)
    -> Step`, or `(text, reward, done)`.

    Example:
        >>> Custom(path="groupwise.domain.language.environment.custom:example").open().step("anything").done
        True
    """

    kind: Literal["custom"] = "custom"
    path: ImportPath
    """`package.module:name`; the module may lie in the working directory."""
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    """Arguments of the class."""
    stop_texts: tuple[str, ...] = ()
    """Texts that end a turn, besides the end-of-sequence token."""

    @property
    def stop(self) -> tuple[str, ...]:
        return self.stop_texts

    def open(self) -> Environment:
        environment = find(self.path)(**self.arguments)
        missing = [name for name in ("reset", "step") if not callable(getattr(environment, name, None))]
        if missing or inspect.isclass(environment):
            raise ConfigError(
                f"environment.path = {self.path!r} makes a {type(environment).__name__} without"
                f" {' and '.join(missing)}; it needs reset(columns) and step(text)"
            )
        return _Checked(environment)


@final
class _Checked:
    def __init__(self, environment: Any) -> None:
        self.environment = environment

    def reset(self, columns: Mapping[str, Any]) -> str:
        return self.environment.reset(columns) or ""

    def step(self, action: str) -> Step:
        answer = self.environment.step(action)
        return answer if isinstance(answer, Step) else Step(*answer)


def example() -> Any:
    """Makes an environment that is over after one turn."""

    class Once:
        def reset(self, columns: Mapping[str, Any]) -> str:
            return ""

        def step(self, action: str) -> tuple[str, float | None, bool]:
            return "", None, True

    return Once()
