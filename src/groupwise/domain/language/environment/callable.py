"""An environment of your own: any class with `reset` and `step`, by import path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from groupwise.config import CalledFromPath
from groupwise.domain.language.environment.base import Environment, EnvironmentKind, Step


@final
class CallableEnvironment(CalledFromPath, EnvironmentKind):
    """`path` names a class (or function) that makes one conversation a member: `reset(columns) -> str` and `step(text)
    -> Step`, or `(text, reward, done)`.

    Example:
        >>> path = "groupwise.domain.language.environment.callable:example"
        >>> CallableEnvironment(path=path).open().step("anything").done
        True
    """

    stop_texts: tuple[str, ...] = ()
    """Texts that end a turn, besides the end-of-sequence token."""

    @property
    def stop(self) -> tuple[str, ...]:
        return self.stop_texts

    def open(self) -> Environment:
        wanted = "an object with reset(columns) and step(text)"
        return _Checked(self.made(Environment, wanted, "domain.environment.path"))


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
