"""Token sequences as a server takes them, padded to few shapes so that a compiling server compiles few programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True)
class Sequenced:
    """One member as the server scores it.

    Args:
        prompt: token ids, at least one.
        tokens: token ids of the completion.
        mask: true where the policy chose the token.

    Example:
        >>> Sequenced([5, 6], [7, 8], [True, False]).num_decisions
        1
    """

    prompt: Sequence[int]
    tokens: Sequence[int]
    mask: Sequence[bool]

    @property
    def num_decisions(self) -> int:
        """The number of tokens that the policy chose."""
        return sum(self.mask)

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Prompt and completion, by which scores are remembered."""
        return tuple(self.prompt), tuple(self.tokens)

    def columns(self, length_multiple: int, **values: Sequence[float]) -> tuple[list[int], dict[str, list[Any]]]:
        """Returns the input ids and the per-token columns, `target_tokens` among them.

        A column is 0 on the prompt, where the mask is false and on the padding.

        Args:
            length_multiple: the number of input ids is filled up to a multiple of this.
            values: numbers for every token of the completion.
        """
        text = [*self.prompt, *self.tokens]
        padding = -(len(text) - 1) % length_multiple
        before = [0.0] * (len(self.prompt) - 1)
        columns: dict[str, list[Any]] = {"target_tokens": [*text[1:], *[0] * padding]}
        for name, column in {"weights": [1.0] * len(self.tokens), **values}.items():
            masked = [float(value) if chosen else 0.0 for value, chosen in zip(column, self.mask, strict=True)]
            columns[name] = [*before, *masked, *[0.0] * padding]
        return [*text[:-1], *[0] * padding], columns

    def completion(self, log_probs: Sequence[float]) -> list[float]:
        """Cuts the server's log-probs of all places to those of the completion."""
        start = len(self.prompt) - 1
        return list(log_probs[start : start + len(self.tokens)])
