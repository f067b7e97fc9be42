"""The interface of an environment: it answers the policy's turns, may reward them, and says when the conversation is
over.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, final, runtime_checkable

from pydantic import Field

from groupwise.config import Config


@final
@dataclass(frozen=True)
class Step:
    """The environment's answer to one turn.

    Args:
        text: what the policy reads next; not used once it is over.
        reward: what this turn earned; None where it earned nothing that counts.
        done: whether the conversation is over.
    """

    text: str = ""
    reward: float | None = None
    done: bool = False


@runtime_checkable
class Environment(Protocol):
    """One member's conversation."""

    def reset(self, columns: Mapping[str, Any]) -> str:
        """Starts on a prompt's columns; the text (often empty) stands between the prompt and the policy's
        first turn.
        """
        ...

    def step(self, action: str) -> Step:
        """Answers the text of one turn."""
        ...


class EnvironmentKind(Config):
    """A conversation as configuration. Subclasses add a `kind`, their parameters and `open`."""

    weight: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    """Factor of the environment's own reward, which is called `environment`: the sum over the turns. 0 means: measured,
    never trained on.
    """

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the data columns the environment reads."""
        return ()

    @property
    def stop(self) -> tuple[str, ...]:
        """Texts that end a turn, besides the end-of-sequence token."""
        return ()

    @property
    def replies(self) -> tuple[str, ...]:
        """Texts it can answer with, where they are few: a vocabulary built from scratch must know them."""
        return ()

    @abstractmethod
    def open(self) -> Environment:
        """Starts a fresh conversation for one member."""
