"""Turns as the messages that a model's response template reads in them: thoughts and calls apart from the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.domain.language.environment.tool_calls import THOUGHT_CLOSES, THOUGHT_OPENS
from groupwise.domain.protocol import Samples
from groupwise.reward.completions import ParsedText

_BEGINS = "\0"
"""Stands for the head of the assistant's turn, which is another in every chat template."""
_TOOL_TURN = {
    "defaults": {"role": "assistant"},
    "start_anchor": _BEGINS,
    "fields": {
        "reasoning_content": {"open": THOUGHT_OPENS, "close_pattern": rf"{THOUGHT_CLOSES}\s*", "content": "text"},
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"content": "text"},
    },
}
"""The response template of turns with calls between `<tool_call>` marks, for tokenizers whose folder has none."""


def reads_turns(tokenizer: Any) -> bool:
    """Returns whether a tokenizer's folder says how turns are read (`response_template` in tokenizer_config.json)."""
    return getattr(tokenizer, "response_template", None) is not None


def unreadable_template(tokenizer: Any) -> list[str]:
    """Says that a tokenizer's response template reads not even a plain answer, so that it reads nothing: a template
    that is broken fails like a turn that breaks its rules.
    """
    ids = tokenizer.encode("4", add_special_tokens=False)
    try:
        if reads_turns(tokenizer):
            _read(tokenizer, ids, ids)
    except (ValueError, TypeError) as error:
        return [
            f"response_template: the tokenizer's reads not even the answer '4' ({' '.join(str(error).split())[:200]});"
            " messages are given to rewards as they were written; mend it in tokenizer_config.json, or take it out"
        ]
    return []


def read_texts(tokenizer: Any, samples: Samples, texts: Sequence[str]) -> Sequence[str]:
    """Returns the texts of completions; in a chat each with the message that is read in it, where the tokenizer's
    folder says how.
    """
    if not reads_turns(tokenizer):
        return texts
    rows = zip(samples.payload["tokens"].tolist(), samples.payload["length"].tolist(), strict=True)
    ids = [tokens[:length] for tokens, length in rows]
    members = zip(texts, ids, samples.payload["prompt_ids"], samples.group.tolist(), strict=True)
    return [
        text
        if isinstance(samples.prompts[group].columns["prompt"], str)
        else parsed_turn(tokenizer, text, turn, prefix)
        for text, turn, prefix, group in members
    ]


def parsed_turn(tokenizer: Any, text: str, ids: Sequence[int], prefix: Sequence[int]) -> ParsedText:
    """Returns the text of a turn with its message, as TRL reads it: `content`, `reasoning_content` or another field
    that the response template names, and `tool_calls`. A turn that cannot be read is a message of its text.

    Args:
        tokenizer: one with a `response_template`.
        text: of the turn, without special tokens.
        ids: its tokens.
        prefix: the tokens before it; a template may have opened a thought there.
    """
    message: Mapping[str, Any] = {"role": "assistant", "content": text}
    try:
        if ids:
            message = _read(tokenizer, ids, prefix)
    # A turn is the model's, and may break every rule of its own format.
    except (ValueError, TypeError, RecursionError):
        pass
    return ParsedText(text, message)


def parsed_tool_turn(tokenizer: Any, text: str, turn: str, *, thinking: bool) -> Mapping[str, Any]:
    """Returns the message of a turn with calls between `<tool_call>` marks, thoughts apart, as TRL reads it where tools
    are given. A turn that cannot be read is a message of its text.

    Args:
        tokenizer: any that decodes.
        text: of the turn, without special tokens.
        turn: the same with the marks that the tokenizer calls special, without the one that ends it.
        thinking: whether the chat template opened a thought before it.
    """
    try:
        return _message(tokenizer, turn, _BEGINS + THOUGHT_OPENS * thinking, _TOOL_TURN)
    # A turn is the model's, and may break every rule of its own format.
    except (ValueError, TypeError, RecursionError):
        return {"role": "assistant", "content": text}


def _read(tokenizer: Any, ids: Sequence[int], prefix: Sequence[int]) -> dict[str, Any]:
    return _message(tokenizer, list(ids), list(prefix))


def _message(tokenizer: Any, turn: Any, prefix: Any, template: Mapping[str, Any] | None = None) -> dict[str, Any]:
    message = tokenizer.parse_response(turn, template, prefix=prefix)
    if message is None:
        raise ValueError("nothing was read")
    content = message.get("content")
    message["content"] = content.removesuffix(tokenizer.eos_token or "") if isinstance(content, str) else content or ""
    for call in message.get("tool_calls") or ():
        function = call.get("function", call)
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise TypeError("a call without a name")
        if function.get("arguments") is None:
            function["arguments"] = {}
    return message
