"""The interface of an environment: it answers the policy's turns, may reward them, and says when the conversation is
over.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Protocol, Self, final, runtime_checkable

from pydantic import Field

from groupwise.config import Config

Weight = Annotated[float, Field(allow_inf_nan=False)]
"""A factor in the sum of rewards."""


@final
@dataclass(frozen=True)
class Step:
    """The environment's answer to one turn.

    Args:
        text: what the policy reads next; not used once it is over.
        reward: the reward of this turn; None where the turn earns none. A conversation without any earns 0 beside
            other weighted rewards, and cannot be scored where there are none.
        done: whether the conversation is over.
        messages: what the policy reads next, as messages for the chat template, in place of `text`.
        action: the policy's turn as a message, where it is more than a text.
        counts: numbers of this turn by name; their sums over a conversation are averaged over members and logged.
    """

    text: str = ""
    reward: float | None = None
    done: bool = False
    messages: Sequence[Mapping[str, Any]] = ()
    action: Mapping[str, Any] | None = None
    counts: Mapping[str, float] = field(default_factory=dict)


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

    reads_special_tokens: ClassVar[bool] = False
    """True where `step` reads the texts of special tokens too, without the one that ends the turn."""
    answers_any_prompt: ClassVar[bool] = False
    """True where a conversation needs nothing of the data, so that it answers the model on a typed text too."""
    needs_template: ClassVar[bool] = False
    """True where the chat template describes the conversation, so that there is none without a template."""
    counted: ClassVar[tuple[str, ...]] = ()
    """Names of the counts that are logged where no step has any, too."""

    weight: Weight = 1.0
    """Factor of the environment's own reward, which is called `environment`: the sum over the turns. 0 means: measured,
    never trained on.
    """

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the data columns the environment reads."""
        return ()

    @property
    def marks_calls(self) -> bool:
        """Whether calls of tools stand between `<tool_call>` marks, in chats whose models may think between others."""
        return False

    @property
    def stop(self) -> tuple[str, ...]:
        """Texts that end a turn, besides the end-of-sequence token."""
        return ()

    @property
    def replies(self) -> tuple[str, ...]:
        """Texts it can answer with, where they are few: a vocabulary built from scratch must know them."""
        return ()

    @property
    def schemas(self) -> tuple[dict[str, Any], ...]:
        """JSON schemas of tools, which the chat template writes into the prompt; a conversation with any is a chat."""
        return ()

    def for_template(self, template: str) -> Self:
        """Returns the conversation for models of a chat template; called where there are `schemas`.

        Raises:
            ConfigError: the template does not fit.
        """
        return self

    @abstractmethod
    def open(self) -> Environment:
        """Starts a fresh conversation for one member."""
