"""The form in which a reward function reads completions: texts, or lists of messages as TRL gives them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

# The text of prompts and completions, which are plain strings or lists of chat messages.

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
    text = completion if isinstance(completion, str) else ""
    for message in [] if isinstance(completion, str) else reversed(completion):
        if message.get("role", "assistant") == "assistant":
            text = content_text(message.get("content"))
            break
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
        content: what is under `content` in a message.

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
    """Returns the beginning of a text on one line, for error messages.

    Args:
        length: number of characters after which the text is cut.

    Example:
        >>> excerpt("one\\ntwo three", 8)
        'one two...'
    """
    line = " ".join(text.split())
    return line if len(line) <= length else line[:length].rstrip() + "..."


CompletionForm = Literal["text", "messages"]
"""A string, or `[{"role": "assistant", "content": ...}]`."""

_SHAPE_ERROR = re.compile(
    r"(?:TypeError|AttributeError|KeyError|IndexError): .*\b(?:str|string|list|dict)\b", re.DOTALL
)
_DESCRIPTIONS = {
    "text": 'texts ("...")',
    "messages": 'lists of messages ([{"role": "assistant", "content": "..."}])',
}


@final
class ParsedText(str):
    """The text of a completion with the message that its model's response template reads in it.

    Rewards that read texts find all of it, thoughts included; those that read messages get the message.

    Args:
        text: the completion.
        message: the message of the assistant, `reasoning_content` apart from `content`.

    Example:
        >>> parsed = ParsedText("<think>so</think>4", {"role": "assistant", "reasoning_content": "so", "content": "4"})
        >>> parsed, as_messages(parsed)[0]["content"]
        ('<think>so</think>4', '4')
    """

    message: Message

    def __new__(cls, text: str, message: Message | None = None) -> ParsedText:
        """Creates the text; a copy gets the message afterwards."""
        made = super().__new__(cls, text)
        made.message = message or {}
        return made


@final
class ParsedConversation(list[Message]):
    """The messages of a conversation, with those that its model's response template reads in its turns.

    Rewards that read texts find thoughts in the content; those that read messages get the messages that were read.

    Args:
        messages: of the conversation, thoughts in the content.
        parsed: the same messages, `reasoning_content` apart from `content`.

    Example:
        >>> said = {"role": "assistant", "content": "<think>so</think>4"}
        >>> read = {"role": "assistant", "reasoning_content": "so", "content": "4"}
        >>> conversation = ParsedConversation([said], [read])
        >>> conversation == [said], as_messages(conversation) == [read]
        (True, True)
    """

    def __init__(self, messages: Sequence[Message], parsed: Sequence[Message]) -> None:
        super().__init__(messages)
        self.parsed = parsed


def in_form(prompts: Sequence[Any], completions: Sequence[Any], form: CompletionForm | None) -> list[Any]:
    """Returns completions in the form that a reward function reads; images stay as they are.

    Args:
        prompts: `B` strings or lists of messages.
        completions: `B` strings, lists of messages, or images.
        form: None takes messages where the member's prompt is a list of messages, and leaves the rest as it is.

    Example:
        >>> in_form([[{"role": "user", "content": "2 + 2?"}], "2 + 2 ="], ["4", "4"], None)
        [[{'role': 'assistant', 'content': '4'}], '4']
        >>> in_form(["2 + 2 ="], ["4"], "messages")
        [[{'role': 'assistant', 'content': '4'}]]
    """
    return [
        _converted(completion, form or ("text" if isinstance(prompt, str) else "messages"), form is not None)
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


def _converted(completion: Any, form: CompletionForm, explicit: bool) -> Any:
    if isinstance(completion, str):
        return str(completion) if form == "text" else as_messages(completion)
    if not isinstance(completion, list):
        return completion
    # A conversation stays whole, unless its text is asked for.
    return completion_text(completion) if explicit and form == "text" else as_messages(completion)


def as_messages(completion: Text) -> Sequence[Message]:
    """Returns a completion as messages: a text as the one of an assistant, a conversation as it is, and either as it
    was read, where a response template reads it.

    Example:
        >>> as_messages("4")
        [{'role': 'assistant', 'content': '4'}]
    """
    if isinstance(completion, str):
        message = completion.message if isinstance(completion, ParsedText) else {"content": completion}
        return [{"role": "assistant", **message}]
    return (
        [dict(message) for message in completion.parsed] if isinstance(completion, ParsedConversation) else completion
    )


def shape_advice(error: str, completions: Sequence[Any]) -> str:
    """Returns the words that follow an error which comes from the form of completions; empty for any other error.

    Args:
        error: the type and the text of the exception.
        completions: the completions as the reward was given them.

    Example:
        >>> shape_advice("TypeError: string indices must be integers, not 'str'", ["4"])
        '; completions were texts ("..."): where it expects lists of messages ([{"role": "assistant", "content": "..."}]), write completions = "messages" on the reward'
        >>> shape_advice("ValueError: no", ["4"])
        ''
    """  # noqa: E501
    if not completions or not _SHAPE_ERROR.search(error) or not isinstance(completions[0], str | list):
        return ""
    current, alternative = ("text", "messages") if isinstance(completions[0], str) else ("messages", "text")
    return (
        f"; completions were {_DESCRIPTIONS[current]}: where it expects {_DESCRIPTIONS[alternative]}, write completions"
        f' = "{alternative}" on the reward'
    )


# Measures for the doctor: whether another member wrote the same text, and how much of a completion repeats itself.


@final
@dataclass(frozen=True)
class Content:
    """A summary of a completion.

    Args:
        digest: equal for equal completions.
        repetition: share of its phrases of three words that are in it before; `None` where it has fewer than two
            such phrases, and of images.
    """

    digest: int
    repetition: float | None = None

    @staticmethod
    def of(completion: Any) -> Content:
        """Reads a text, a list of messages, or an image (a tensor or array of bytes).

        Example:
            >>> Content.of("a b c a b c a b c").repetition, Content.of("a b c").repetition
            (0.5714285714285714, None)
            >>> Content.of("yes").digest == Content.of("yes").digest != Content.of("no").digest
            True
        """
        if isinstance(completion, str | list):
            text = completion if isinstance(completion, str) else completion_text(completion)
            content, share = text.encode(errors="replace"), repetition(text.split())
        else:
            array = completion.numpy() if hasattr(completion, "numpy") else completion
            content, share = array.tobytes(), None
        return Content(int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big"), share)


def repetition(words: Sequence[str]) -> float | None:
    """Returns the share of phrases of three words that are in the text before; `None` of fewer than two phrases.

    Args:
        words: of a text.
    """
    num_phrases = len(words) - 2
    return 1 - len(set(zip(words, words[1:], words[2:], strict=False))) / num_phrases if num_phrases > 1 else None
