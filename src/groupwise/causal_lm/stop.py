"""The end of a turn: end-of-sequence tokens, and stop texts, which are looked for in the decoded text so that their cut
into tokens does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor

from groupwise.config import ConfigError


@final
class Stops:
    """Tells cheaply which tokens may end a turn, and exactly whether one does.

    Decoding every member at every token would cost more than a small model. A stop text can only be completed by a
    token that contains its last character, so a table over the vocabulary names the tokens after which it is worth
    decoding the tail.

    Args:
        eos: ids that end a turn by themselves.
        texts: stop texts; they need a tokenizer.
        tokenizer: a tokenizer of transformers.
        vocabulary: number of logits.
        device: where `may_end` is looked up.

    Example:
        >>> from groupwise.causal_lm.scratch import character_tokenizer
        >>> tokenizer = character_tokenizer("abc")  # pad 0, end 1, unknown 2, a 3, b 4, c 5
        >>> stops = Stops([1], ["ab"], tokenizer, vocabulary=6, device=torch.device("cpu"))
        >>> stops.may_end(torch.tensor([3, 4, 1])).tolist()
        [False, True, True]
        >>> stops.ends([5, 3, 4]), stops.ends([5, 4]), stops.ends([5, 1])
        (True, False, True)
    """

    def __init__(
        self, eos: Iterable[int], texts: Sequence[str], tokenizer: Any, vocabulary: int, device: torch.device
    ) -> None:
        self.eos = frozenset(eos)
        self.texts = tuple(texts)
        self.tokenizer = tokenizer
        if self.texts and tokenizer is None:
            raise ConfigError(
                f"stop = {list(self.texts)} needs a tokenizer to decode with; pass one, or write stop = []"
            )
        self._vocabulary, self._device = vocabulary, device
        # A character takes at most four byte tokens; a few more in front, because decoders treat the first token of a
        # text apart.
        self.tail = 4 * max((len(text) for text in self.texts), default=0) + 4

    def may_end(self, tokens: Tensor) -> Tensor:
        """Marks the tokens after which `ends` must be called, ``[B]`` bool."""
        return self._table[tokens]

    @cached_property
    def _table(self) -> Tensor:
        table = torch.zeros(self._vocabulary, dtype=torch.bool)
        if self.texts:
            completes = torch.tensor(_may_complete(self.tokenizer, self.texts), dtype=torch.bool)
            table[: len(self.tokenizer)] = completes[: self._vocabulary]
        for token in self.eos:
            if token < self._vocabulary:
                table[token] = True
        return table.to(self._device)

    def ends(self, turn: Sequence[int]) -> bool:
        """Tests that the turn whose tokens are `turn` ends with its last token."""
        if turn[-1] in self.eos:
            return True
        if not self.texts:
            return False
        # Only the last token's text is new: a stop text before it would have ended the turn already.
        tail = _decode(self.tokenizer, turn[-self.tail :])
        return any(text in tail for text in self.texts)


def _decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    return tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def _may_complete(tokenizer: Any, texts: Sequence[str]) -> list[bool]:
    last_characters = {text[-1] for text in texts}
    num = len(tokenizer)
    if any(character.isspace() for character in last_characters):
        # Decoders drop or merge white space at the edges, so a token decoded alone does not show it.
        return [True] * num
    token_texts = tokenizer.batch_decode(
        [[token] for token in range(num)], skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    # A token that decodes to the replacement character is part of a character; it may complete any.
    return [any(character in text for character in last_characters) or "\ufffd" in text for text in token_texts]
