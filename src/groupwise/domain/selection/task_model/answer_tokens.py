"""An answer as the token ids that follow a prompt, and token ids as an answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, final

from groupwise.config import ConfigError
from groupwise.domain.selection.task_model.template import Template

# Stands before an answer whose tokenizer would otherwise take it for the beginning of a text.
_ANCHOR = "\n"


@final
class Answers:
    """A tokenizer's view of answers.

    Args:
        tokenizer: of transformers.
        template: what stands before an answer, and what ends a generated one.
    """

    def __init__(self, tokenizer: Any, template: Template) -> None:
        self._tokenizer, self._template = tokenizer, template
        first = tokenizer.convert_ids_to_tokens(self._encode("a"))[:1]
        # Tokenizers of the SentencePiece kind put a space before every text; in the middle of one there is none.
        self._adds_space = (
            bool(first)
            and str(first[0]).startswith("▁")
            and self._encode("a") != self._encode(_ANCHOR + "a")[len(self._encode(_ANCHOR)) :]
        )
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self.description: str = (
            backend.to_str() if backend is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)
        )
        """All that decides how texts become ids, for a fingerprint."""
        self._known: dict[str, list[int]] = {}

    def ids(self, answer: str, query: str) -> list[int]:
        """The ids of an answer in the middle of a text, without special tokens.

        Args:
            answer: the text.
            query: the query's id, for an error.

        Raises:
            ConfigError: it becomes no token.
        """
        if answer in self._known:
            return self._known[answer]
        text = self._template.answer_text(answer)
        ids = self._encode(text)
        if self._adds_space:
            before = self._encode(_ANCHOR)
            after = self._encode(_ANCHOR + text)
            if after[: len(before)] == before:
                ids = after[len(before) :]
        if not ids or not answer.strip():
            raise ConfigError(
                f"query {query!r}: its answer {answer!r} becomes {len(ids)} tokens and no word; every answer needs one"
                " that can be predicted, so write one (`unanswerable`, for example) or leave the query out"
            )
        self._known[answer] = ids
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """A generated answer: decoded, cut at the first stop text, without white space around it."""
        text = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        places = [place for stop in self._template.stop if (place := text.find(stop)) >= 0]
        return text[: min(places, default=len(text))].strip()

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))
