"""A batch of conversations: every member has its environment, which answers the member's turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from groupwise.domain.language.chat import Chat
from groupwise.domain.language.environment import EnvironmentKind
from groupwise.domain.language.environment.tool_calls import THOUGHT_CLOSES, THOUGHT_OPENS
from groupwise.domain.language.parsed_turn import parsed_tool_turn, parsed_turn, reads_turns
from groupwise.domain.language.written import written_texts
from groupwise.reward.completions import ParsedConversation

if TYPE_CHECKING:
    from torch import Tensor

Message = dict[str, Any]
_MARK_TOKENS = 16
"""More tokens than the mark of a thought and the space behind it take, letter by letter."""


@final
class Conversations:
    """The environments of a batch, which the sampler calls when a turn ends.

    Args:
        environment: the kind of environment; each member gets one of its own.
        columns: the prompt's columns of each member.
        chat: how answers become tokens.
        eos: ids that end a turn by themselves.
        max_new_tokens: limit on a member's tokens; an answer that leaves no room to go on ends it.
        prompt_ids: the prompt's tokens of each member, after which a response template reads the first turn.

    Attributes:
        messages: of each member, what the policy wrote in `content`, with its calls, and what was answered.
    """

    def __init__(
        self,
        environment: EnvironmentKind,
        columns: Sequence[Mapping[str, Any]],
        chat: Chat,
        eos: Sequence[int],
        max_new_tokens: int,
        prompt_ids: Sequence[Sequence[int]] = (),
    ) -> None:
        self.chat, self.columns, self.eos, self.max_new_tokens = chat, columns, frozenset(eos), max_new_tokens
        self._environment, self._prompt_ids = environment, prompt_ids
        self._reads_special_tokens = environment.reads_special_tokens
        self._marks_calls = environment.marks_calls
        self.begin()

    def begin(self) -> None:
        """Begins every conversation, each with an environment of its own; what was said before is forgotten."""
        columns = self.columns
        self.environments = [self._environment.open() for _ in columns]
        for conversation, prompt_columns in zip(self.environments, columns, strict=True):
            conversation.reset(prompt_columns)
        self.messages: list[list[Message]] = [[] for _ in columns]
        self._parsed: list[list[Message]] = [[] for _ in columns]
        self._before = [list(ids) for ids in self._prompt_ids] or [[] for _ in columns]
        self.rewards: list[float | None] = [None] * len(columns)
        self.counts: list[dict[str, float]] = [dict.fromkeys(self._environment.counted, 0.0) for _ in columns]
        self._length = [0] * len(columns)

    @property
    def completions(self) -> list[ParsedConversation]:
        """The messages of each member, with those that the tokenizer's response template reads in them."""
        return list(map(ParsedConversation, self.messages, self._parsed))

    def answer(self, member: int, turn: list[int]) -> list[int] | None:
        """Answers a turn with the environment's tokens; None when the conversation is over."""
        texts = text, marked = self._texts(turn)
        # What is thought is not said: a thought that was not closed holds no call.
        action = "" if self._reads_special_tokens and self._ends_in_thought(member, marked) else marked
        try:
            step = self.environments[member].step(action)
        except Exception as error:
            error.add_note(
                f"environment.step raised in member {member} on the turn {text!r} after the prompt"
                f" {self.columns[member]['prompt']!r}"
            )
            raise
        self._say(member, turn, texts, dict(step.action or {"role": "assistant", "content": text}))
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
        self._parsed[member] += replies
        self._before[member] += [*turn, *reply]
        return None if self._length[member] >= self.max_new_tokens else reply

    def add_cut_off(self, tokens: Tensor, length: Tensor) -> None:
        """Adds the turns that a limit cut off, which the environment did not see and rewards read.

        Args:
            tokens: `[members, longest]`; all that were sampled and answered after the prompts.
            length: `[members]`; of each.
        """
        for member, (ids, end) in enumerate(zip(tokens.tolist(), length.tolist(), strict=True)):
            if turn := ids[self._length[member] : end]:
                texts = self._texts(turn)
                self._say(member, turn, texts, {"role": "assistant", "content": texts[0]})

    def _texts(self, turn: Sequence[int]) -> tuple[str, str]:
        """Returns the text of a turn, and the one that the environment reads: without the token that ended it, with the
        marks that the tokenizer calls special where it reads those.
        """
        (text,) = written_texts(self.chat.tokenizer, [turn], self.eos)
        said = turn[:-1] if turn[-1] in self.eos else turn
        return text, self.chat.tokenizer.decode(said, skip_special_tokens=False) if self._reads_special_tokens else text

    def _say(self, member: int, turn: Sequence[int], texts: tuple[str, str], written: Message) -> None:
        """Adds a turn, as it was written and as it is read."""
        self.messages[member].append(written)
        self._parsed[member].append(self._read(member, turn, texts, written))

    def _ends_in_thought(self, member: int, turn: str) -> bool:
        """Returns whether a turn leaves a thought open that it began, or that the chat template began before it."""
        opened = THOUGHT_OPENS * self._begins_in_thought(member)
        _, mark, thought = (opened + turn).rpartition(THOUGHT_OPENS)
        return bool(mark) and THOUGHT_CLOSES not in thought

    def _begins_in_thought(self, member: int) -> bool:
        """Returns whether the chat template began a thought before a turn."""
        before = self.chat.tokenizer.decode(self._before[member][-_MARK_TOKENS:], skip_special_tokens=False)
        return before.rstrip().endswith(THOUGHT_OPENS)

    def _read(self, member: int, turn: Sequence[int], texts: tuple[str, str], written: Message) -> Message:
        """Returns a turn as the response template reads it, with the calls that were made, or thoughts apart from it
        where calls stand between marks; as it was written, where neither is so or the prompt is no chat.
        """
        tokenizer, (text, marked) = self.chat.tokenizer, texts
        if isinstance(self.columns[member]["prompt"], str):
            return written
        if reads_turns(tokenizer):
            message = parsed_turn(tokenizer, text, turn, self._before[member]).message
        elif self._marks_calls:
            message = parsed_tool_turn(tokenizer, text, marked, thinking=self._begins_in_thought(member))
        else:
            return written
        calls = {name: value for name, value in written.items() if name == "tool_calls"}
        return {name: value for name, value in message.items() if name != "tool_calls"} | calls
