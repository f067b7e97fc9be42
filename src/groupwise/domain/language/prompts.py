"""Prompts as token ids, with a limit on their length and a count of what the limit cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from groupwise.causal_lm.prompt import cut_left, encode_middle
from groupwise.config import ConfigError
from groupwise.domain.language.chat import Chat
from groupwise.domain.language.config import ChatConfig, DataConfig, LanguageConfig
from groupwise.domain.language.data import split
from groupwise.domain.language.environment import EnvironmentKind
from groupwise.domain.protocol import Prompt


@final
@dataclass(frozen=True)
class Tokenized:
    """Prompts that fit into the limit.

    Args:
        prompts: the prompts that fit.
        ids: their token ids by key.
        num_dropped: prompts left out for their length.
        num_truncated: prompts cut on the left.
    """

    prompts: tuple[Prompt, ...]
    ids: dict[str, list[int]]
    num_dropped: int = 0
    num_truncated: int = 0


def tokenize(
    prompts: Sequence[Prompt],
    chat: Chat,
    environment: EnvironmentKind | None,
    limit: int | None,
    overlong: Literal["error", "drop", "truncate"],
) -> Tokenized:
    """Encodes every prompt, with the environment's opening text.

    Args:
        environment: the policy's partner in a conversation.
        limit: tokens of the longest prompt; None for any length.
        overlong: what happens to a longer one; `truncate` keeps its end, and the token that begins a sequence.

    Raises:
        ConfigError: a longer one under `error`, a prompt of no tokens, or none left.
    """
    fitting_prompts: list[Prompt] = []
    ids: dict[str, list[int]] = {}
    num_dropped = num_truncated = 0
    for prompt in prompts:
        prompt_ids = encode(prompt, chat, environment)
        if not prompt_ids:
            raise ConfigError(
                f"data: the prompt {prompt.columns['prompt']!r} has no tokens; give every prompt at least one"
            )
        if limit is not None and len(prompt_ids) > limit:
            if overlong == "error":
                raise ConfigError(
                    f"data: the prompt {_excerpt(prompt)} has {len(prompt_ids)} tokens and there is room for {limit}"
                    " (max_prompt_tokens, or the model's context less sampling.max_new_tokens); write overlong ="
                    " 'drop' or 'truncate', or a smaller sampling.max_new_tokens"
                )
            if overlong == "drop":
                num_dropped += 1
                continue
            num_truncated += 1
            prompt_ids = cut_left(chat.tokenizer, prompt_ids, limit)
        fitting_prompts.append(prompt)
        ids[prompt.key] = prompt_ids
    if prompts and not fitting_prompts:
        raise ConfigError(
            f"data: all {len(prompts)} prompts are longer than {limit} tokens; write a larger max_prompt_tokens, or"
            " overlong = 'truncate'"
        )
    return Tokenized(tuple(fitting_prompts), ids, num_dropped, num_truncated)


def prompt_limit(config: LanguageConfig, context: int | None) -> int | None:
    """Returns the tokens of the longest prompt that is taken; `None` for any length.

    Args:
        context: tokens of the model's context; `None` where it has no limit.

    Raises:
        ConfigError: completions leave no room for a prompt.
    """
    configured_limit, completion = config.max_prompt_tokens, config.longest_completion
    if context is None:
        return configured_limit
    if completion >= context:
        is_scheduled = completion > config.sampling.max_new_tokens
        key = "sampling_schedule.max_new_tokens" if is_scheduled else "sampling.max_new_tokens"
        raise ConfigError(
            f"{key} = {completion} leaves no room for a prompt in the model's context of {context} tokens; write at"
            f" most {context - 1}"
        )
    room = context - completion
    return room if configured_limit is None else min(configured_limit, room)


def encode(prompt: Prompt, chat: Chat, environment: EnvironmentKind | None) -> list[int]:
    """Encodes one prompt up to the policy's first turn."""
    content: Any = prompt.columns["prompt"]
    opening = environment.open().reset(prompt.columns) if environment is not None else ""
    if not opening:
        return chat.encode_prompt(content)
    messages = chat.messages(content)
    if messages is not None:
        return chat.encode_prompt([*messages, {"role": chat.config.reply_role, "content": opening}])
    return chat.encode_prompt(content) + encode_middle(chat.tokenizer, opening)


def mean_tokens(data: DataConfig, chat: ChatConfig, environment: EnvironmentKind | None, folder: str) -> float:
    """Computes the mean length of the training prompts, the first 256 of them, in tokens of a model's tokenizer.

    Args:
        data: the source, which is read.
        chat: the use of the chat template.
        environment: the policy's partner in a conversation.
        folder: of the model; its weights are not loaded.

    Raises:
        ConfigError: data or a tokenizer that cannot be read.
    """
    from groupwise.causal_lm.loading import load_tokenizer

    rendering = Chat(load_tokenizer(folder), chat, environment.schemas if environment is not None else ())
    lengths = [len(encode(prompt, rendering, environment)) for prompt in split(data).train[:256]]
    return sum(lengths) / len(lengths)


def _excerpt(prompt: Prompt) -> str:
    text = str(prompt.columns["prompt"])
    return repr(text if len(text) <= 60 else text[:60] + "...")
