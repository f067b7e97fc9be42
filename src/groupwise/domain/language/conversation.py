"""A batch of conversations: every member has its environment, which answers the member's turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from groupwise.domain.language.chat import Chat
from groupwise.domain.language.environment import EnvironmentKind

Message = dict[str, Any]


@final
class Conversations:
    """The environments of a batch, which the sampler calls when a turn ends.

    Args:
        environment: the kind of environment; each member gets one of its own.
        columns: the prompt's columns of each member.
        chat: how answers become tokens.
        eos: ids that end a turn by themselves.
        max_new_tokens: limit on a member's tokens; an answer that leaves no room to go on ends it.
    """

    def __init__(
        self,
        environment: EnvironmentKind,
        columns: Sequence[Mapping[str, Any]],
        chat: Chat,
        eos: Sequence[int],
        max_new_tokens: int,
    ) -> None:
        self.chat, self.columns, self.eos, self.max_new_tokens = chat, columns, frozenset(eos), max_new_tokens
        self.environments = [environment.open() for _ in columns]
        for conversation, prompt_columns in zip(self.environments, columns, strict=True):
            conversation.reset(prompt_columns)
        self.messages: list[list[Message]] = [[] for _ in columns]
        self.rewards: list[float | None] = [None] * len(columns)
        self.counts: list[dict[str, float]] = [dict.fromkeys(environment.counted, 0.0) for _ in columns]
        self._reads_special_tokens = environment.reads_special_tokens
        self._length = [0] * len(columns)

    def answer(self, member: int, turn: list[int]) -> list[int] | None:
        """Answers a turn with the environment's tokens; None when the conversation is over."""
        text = self.chat.tokenizer.decode(turn, skip_special_tokens=True)
        action = text
        if self._reads_special_tokens:
            action = self.chat.tokenizer.decode(turn[:-1] if turn[-1] in self.eos else turn, skip_special_tokens=False)
        try:
            step = self.environments[member].step(action)
        except Exception as error:
            error.add_note(
                f"environment.step raised in member {member} on the turn {text!r} after the prompt"
                f" {self.columns[member]['prompt']!r}"
            )
            raise
        self.messages[member].append(dict(step.action or {"role": "assistant", "content": text}))
        for name, count in step.counts.items():
            self.counts[member][name] = self.counts[member].get(name, 0.0) + count
        if step.reward is not None:
            self.rewards[member] = (self.rewards[member] or 0.0) + step.reward
        self._length[member] += len(turn)
        if step.done:
            return None
        replies = [dict(message) for message in step.messages] or [self.chat.reply_message(step.text)]
        end = turn[-1] if turn[-1] in self.eos else None
        reply = self.chat.encode_reply(self.columns[member]["prompt"], replies, end)
        self._length[member] += len(reply)
        self.messages[member] += replies
        return None if self._length[member] >= self.max_new_tokens else reply
