"""Demonstrations as members: no reward, and a text whose probability is raised.

supervised_b = - sum_t target_bt lp_bt,    at temperature 1, divided by the number of target tokens of the whole update
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from groupwise.config import ConfigError
from groupwise.domain.language.chat import Chat
from groupwise.domain.language.data import Demonstration, encode
from groupwise.domain.language.environment import EnvironmentKind
from groupwise.domain.protocol import Prompt, Samples


@dataclass(frozen=True)
class Example:
    """One demonstration in tokens.

    Args:
        prompt_ids: the prompt's tokens.
        tokens: the continuation, the environment's answers included.
        target: which of these tokens the policy is to write.
    """

    prompt: Prompt
    prompt_ids: tuple[int, ...]
    tokens: tuple[int, ...]
    target: tuple[bool, ...]


class Corpus:
    """Demonstrations, each encoded when it is first drawn.

    Args:
        demonstrations: in their order.
        encode: makes the tokens of one, and refuses one that is too long.
        may_be_too_long: whether one has to be encoded at once, so that it is refused before anything is computed.
    """

    def __init__(
        self,
        demonstrations: Sequence[Demonstration],
        encode: Callable[[Demonstration], Example],
        may_be_too_long: Callable[[Demonstration], bool],
    ) -> None:
        self._demonstrations, self._encode = demonstrations, encode
        self._examples = {
            place: encode(demonstration)
            for place, demonstration in enumerate(demonstrations)
            if may_be_too_long(demonstration)
        }

    def __len__(self) -> int:
        return len(self._demonstrations)

    def __getitem__(self, place: int) -> Example:
        if place not in self._examples:
            self._examples[place] = self._encode(self._demonstrations[place])
        return self._examples[place]


def has_few_letters(demonstration: Demonstration, limit: int | None, num_special: int) -> bool:
    """Returns whether a demonstration of ASCII texts has no more characters than the context has tokens. Then it fits
    without being encoded, because no token of ASCII text is shorter than a character.

    Args:
        limit: longest prompt and completion together.
        num_special: tokens that the tokenizer adds to a text.
    """
    texts = (demonstration.prompt.columns["prompt"], *demonstration.turns)
    return all(isinstance(text, str) and text.isascii() for text in texts) and (
        limit is None or sum(map(len, texts)) + len(texts) * (1 + num_special) <= limit
    )


def encode_demonstration(
    demonstration: Demonstration,
    chat: Chat,
    environment: EnvironmentKind | None,
    ends: Sequence[int],
    stop: Sequence[str],
    limit: int | None,
) -> Example:
    """Encodes a demonstration. A turn of the policy ends as in `Chat.encode_turn`, unless it ends with a stop text.

    Args:
        chat, environment: how prompts and answers are written.
        ends: ids that end a turn by themselves.
        stop: texts that end a turn.
        limit: longest prompt and completion together.

    Raises:
        ConfigError: it is longer than the model's context.
    """
    prompt = encode(demonstration.prompt, chat, environment)
    tokens: list[int] = []
    target: list[bool] = []
    content = demonstration.prompt.columns["prompt"]
    end: int | None = None
    for number, text in enumerate(demonstration.turns):
        policy = number % 2 == 0
        if policy:
            stopped = any(text.endswith(stop_text) for stop_text in stop)
            ids = chat.encode_text(text) if stopped else chat.encode_turn(content, text, ends)
            end = None if stopped else ids[-1]
        else:
            ids = chat.encode_reply(content, [chat.reply_message(text)], end)
        tokens += ids
        target += [policy] * len(ids)
    if limit is not None and len(prompt) + len(tokens) > limit:
        raise ConfigError(
            f"demonstrations: the text after {str(demonstration.prompt.columns['prompt'])[:60]!r} has {len(tokens)}"
            f" tokens beside the prompt's {len(prompt)}, above the model's context of {limit}; take it out, or write a"
            " larger model.max_length"
        )
    return Example(demonstration.prompt, tuple(prompt), tuple(tokens), tuple(target))


def as_samples(examples: Sequence[Example], device: torch.device) -> Samples:
    """Makes a batch of demonstrations: mask false everywhere, `auxiliary_count["supervised"]` the target tokens of
    each.
    """
    width = max(len(example.tokens) for example in examples)
    tokens = torch.tensor(
        [[*example.tokens, *[0] * (width - len(example.tokens))] for example in examples], device=device
    )
    target = torch.tensor(
        [[*example.target, *[False] * (width - len(example.tokens))] for example in examples], device=device
    )
    return Samples(
        prompts=[example.prompt for example in examples],
        group=torch.arange(len(examples), device=device),
        mask=torch.zeros_like(target),
        old_log_prob=torch.zeros(target.shape, device=device),
        payload={
            "prompt_ids": [list(example.prompt_ids) for example in examples],
            "tokens": tokens,
            "target": target,
            "length": torch.tensor([len(example.tokens) for example in examples], device=device),
        },
        auxiliary_count={"supervised": target.sum(1).double()},
    )
