"""An answer as the token ids that follow a prompt, and token ids as an answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, final

from groupwise.causal_lm.prompt import encode_middle
from groupwise.config import ConfigError
from groupwise.domain.selection.task_model.template import Template


@final
class Answers:
    """A tokenizer's view of answers.

    Args:
        tokenizer: a tokenizer of transformers.
        template: states the text around an answer, and the texts that end a generated answer.
    """

    def __init__(self, tokenizer: Any, template: Template) -> None:
        self._tokenizer, self._template = tokenizer, template
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self.description: str = (
            backend.to_str() if backend is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)
        )
        """The serialised tokenizer, for a fingerprint."""
        self._ids_by_answer: dict[str, list[int]] = {}

    def ids(self, answer: str, query: str) -> list[int]:
        """Encodes an answer in the middle of a text, without special tokens.

        Args:
            answer: text of the answer.
            query: id of the query, for an error.

        Raises:
            ConfigError: the answer becomes no token.
        """
        if answer in self._ids_by_answer:
            return self._ids_by_answer[answer]
        text = self._template.answer_text(answer)
        ids = encode_middle(self._tokenizer, text)
        if not ids or not answer.strip():
            raise ConfigError(
                f"query {query!r}: its answer {answer!r} becomes {len(ids)} tokens and no word; every answer needs one"
                " that can be predicted, so write one (`unanswerable`, for example) or leave the query out"
            )
        self._ids_by_answer[answer] = ids
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """Decodes a generated answer, cut at the first stop text, without white space around it."""
        text = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        places = [place for stop in self._template.stop if (place := text.find(stop)) >= 0]
        return text[: min(places, default=len(text))].strip()
