"""The text of prompts and completions, which are plain strings or lists of chat messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]
Text = str | Sequence[Message]
MAX_CHARACTERS = 1_000_000
"""Largest number of characters that rewards read of one completion."""


def completion_text(completion: Text) -> str:
    """Returns the text of the model's last message: the string itself, or the content of the last assistant message.

    A message without a role counts as the assistant's (a completion holds what the model said). No such message gives
    the empty string. Of a longer text the first million characters are read, and halves of surrogate pairs, which no
    encoder takes, become question marks.

    Args:
        completion: a string, or a list of messages.

    Example:
        >>> completion_text([{"role": "assistant", "content": "4"}, {"role": "tool", "content": "ok"}])
        '4'
        >>> completion_text("4")
        '4'
    """
    if isinstance(completion, str):
        return _readable(completion)
    for message in reversed(completion):
        if message.get("role", "assistant") == "assistant":
            return _readable(content_text(message.get("content")))
    return ""


def _readable(text: str) -> str:
    text = text[:MAX_CHARACTERS]
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def prompt_text(prompt: Text) -> str:
    """Returns a prompt as one text: the string itself, or one line `role: content` a message; a single message is
    written without its role.

    Args:
        prompt: a string, or a list of messages.

    Example:
        >>> prompt_text([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}])
        'system: Be brief.\\nuser: 2 + 2?'
    """
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return content_text(prompt[0].get("content"))
    return "\n".join(f"{message.get('role', 'user')}: {content_text(message.get('content'))}" for message in prompt)


def content_text(content: Any) -> str:
    """Returns the text of a message's content, which is a string, None, or a list of parts of which only the text parts
    are read.

    Args:
        content: what stands under `content` in a message.

    Example:
        >>> content_text([{"type": "image"}, {"type": "text", "text": "a cat"}])
        'a cat'
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content if part.get("type", "text") == "text")


def excerpt(text: str, length: int = 60) -> str:
    """Returns the beginning of a text on one line, for messages.

    Args:
        length: number of characters after which the text is cut.

    Example:
        >>> excerpt("one\\ntwo three", 8)
        'one two...'
    """
    line = " ".join(text.split())
    return line if len(line) <= length else line[:length].rstrip() + "..."
