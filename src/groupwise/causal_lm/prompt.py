"""Prompts as texts and token ids: chats are rendered, and special tokens are written only where they are meant."""

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.config import ConfigError

_THOUGHT_OPENS, _THOUGHT_CLOSES = "<think>", "</think>"
# Put before a text, for tokenizers that encode the beginning of a text differently.
_ANCHOR = "\n"


def encode_prompts(tokenizer: Any, texts: Sequence[str], *, rendered: bool = False) -> list[list[int]]:
    """Encodes texts that a model is to continue: with one beginning-of-sequence token where the tokenizer or the text
    has one, and without the tokens that the tokenizer appends, since nothing is to be written after an end.

    Args:
        tokenizer: a tokenizer of transformers.
        texts: the prompts.
        rendered: whether a chat template wrote them, with the special tokens that it wants.

    Example:
        >>> from groupwise.causal_lm.small import character_tokenizer
        >>> encode_prompts(character_tokenizer("ab"), ["ab"])
        [[3, 4]]
    """
    if not texts:
        return []
    rows: list[list[int]] = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    begin = [] if rendered else added_tokens(tokenizer, texts)[0]
    return [_begun(begin, list(row), tokenizer.bos_token_id) for row in rows]


def added_tokens(tokenizer: Any, texts: Sequence[str] = ()) -> tuple[list[int], list[int]]:
    """Returns the tokens that a tokenizer puts before and after a text.

    Args:
        tokenizer: a tokenizer of transformers.
        texts: texts to find them with, where the letter `a` has no token.
    """
    for probe in ("a", *texts):
        if bare := _bare(tokenizer, probe):
            whole = list(tokenizer.encode(probe))
            for start in range(len(whole) - len(bare), -1, -1):
                if whole[start : start + len(bare)] == bare:
                    return whole[:start], whole[start + len(bare) :]
    return [], []


def encode_middle(tokenizer: Any, text: str) -> list[int]:
    """Encodes a text that is in the middle of another. Tokenizers of the SentencePiece kind put a space before
    every text; in the middle there is none.
    """
    anchor, ids = _bare(tokenizer, _ANCHOR), _bare(tokenizer, text)
    letter = _bare(tokenizer, "a")
    first = tokenizer.convert_ids_to_tokens(letter[:1])
    if first and str(first[0]).startswith("▁") and letter != _bare(tokenizer, _ANCHOR + "a")[len(anchor) :]:
        after = _bare(tokenizer, _ANCHOR + text)
        if after[: len(anchor)] == anchor:
            return after[len(anchor) :]
    return ids


def cut_left(tokenizer: Any, ids: Sequence[int], limit: int) -> list[int]:
    """Keeps the last `limit` tokens of a prompt, the token that begins a sequence among them."""
    if len(ids) > limit > 1 and ids[0] == tokenizer.bos_token_id:
        return [ids[0], *ids[1 - limit :]]
    return list(ids[-limit:])


def render_chat(
    writer: Any,
    messages: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any] | None = None,
    *,
    opens_turn: bool = True,
) -> str:
    """Renders a chat up to the place where the model writes. A chat that ends with the assistant's message is
    continued. Nothing is written for what is null, nor for the arguments of calls that a table filled with nulls.

    Args:
        writer: a tokenizer or processor of transformers.
        messages: the chat.
        settings: further arguments of the chat template.
        opens_turn: whether the model writes next; without it the chat ends as its last message does.

    Raises:
        ConfigError: the chat template refuses the messages.
    """

    def render(chat: Sequence[Mapping[str, Any]]) -> str:
        if opens_turn and chat[-1]["role"] == "assistant" and not chat[-1].get("tool_calls"):
            return _continued(writer, chat, settings or {})
        return writer.apply_chat_template(
            list(chat), tokenize=False, add_generation_prompt=opens_turn, **settings or {}
        )

    chat = without_nulls(messages)
    try:
        try:
            return render(chat)
        except Exception:  # a template raises errors of any kind, mostly about messages
            if all("content" in message for message in chat):
                raise
            return render([{"content": "", **message} for message in chat])
    except Exception as error:
        raise ConfigError(f"the model's chat template refuses {str(list(messages))[:200]}: {error}"[:700]) from error


def without_nulls(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns messages without the keys that are null. Tables (Parquet, `datasets`, and JSONL made of them) give all
    messages the same keys, and fill the arguments of calls likewise: where they have, nulls in arguments go too.

    Example:
        >>> call = {"function": {"name": "add", "arguments": {"a": 1, "city": None}}}
        >>> chat = [
        ...     {"role": "user", "content": "?", "tool_calls": None},
        ...     {"role": "assistant", "content": "", "tool_calls": [call]},
        ... ]
        >>> without_nulls(chat)[1]["tool_calls"]
        [{'function': {'name': 'add', 'arguments': {'a': 1}}}]
    """
    is_filled = (len(messages) > 1 and len({frozenset(message) for message in messages}) == 1) or any(
        value is None and key != "content" for message in messages for key, value in message.items()
    )
    kept = [{key: value for key, value in message.items() if value is not None} for message in messages]
    for message in kept:
        if is_filled and message.get("tool_calls"):
            message["tool_calls"] = _without_null_keys(message["tool_calls"])
    return kept


def _bare(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def _begun(begin: list[int], ids: list[int], bos: int | None) -> list[int]:
    """Puts tokens before others. Tokens that end the first and also begin the second are kept once."""
    shared = max(size for size in range(len(begin) + 1) if begin[len(begin) - size :] == ids[:size])
    ids = begin + ids[shared:]
    while len(ids) > 1 and ids[0] == ids[1] == bos:
        ids = ids[1:]
    return ids


def _continued(writer: Any, messages: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> str:
    """Renders a chat whose last message the model continues with."""
    *before, last = messages
    text = content if isinstance(content := last.get("content"), str) else ""
    begins_thought = text.lstrip().startswith(_THOUGHT_OPENS)
    try:
        rendered = writer.apply_chat_template(list(messages), tokenize=False, continue_final_message=True, **settings)
        # Templates of thinking models write an empty thought before a message that has none.
        head = rendered.rstrip().removesuffix(text.strip()).rstrip()
        if not (begins_thought and head.endswith(_THOUGHT_CLOSES)):
            return rendered
    except ValueError:  # the template does not write the message as it is
        if not begins_thought:
            raise
    opened = writer.apply_chat_template(before, tokenize=False, add_generation_prompt=True, **settings)
    return (opened.rstrip().removesuffix(_THOUGHT_OPENS) if opened.rstrip().endswith(_THOUGHT_OPENS) else opened) + text


def _without_null_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_null_keys(entry) for key, entry in value.items() if entry is not None}
    return [_without_null_keys(entry) for entry in value] if isinstance(value, list | tuple) else value
