"""The form in which a reward function reads completions: texts, or lists of messages as TRL gives them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, final

from groupwise.reward.text import Message, Text, completion_text

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
        message: of the assistant, `reasoning_content` apart from `content`.

    Example:
        >>> parsed = ParsedText("<think>so</think>4", {"role": "assistant", "reasoning_content": "so", "content": "4"})
        >>> parsed, as_messages(parsed)[0]["content"]
        ('<think>so</think>4', '4')
    """

    __slots__ = ("message",)

    def __new__(cls, text: str, message: Message) -> ParsedText:
        """Makes the text."""
        made = super().__new__(cls, text)
        made.message = message
        return made

    message: Message


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
        completions: as the reward was given them.

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
