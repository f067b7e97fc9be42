"""Prompts as token ids: plain text, or messages through the tokenizer's chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, final

from groupwise.causal_lm.prompt import encode_middle, encode_prompts, render_chat, without_nulls
from groupwise.config import ConfigError
from groupwise.domain.language.config import ChatConfig
from groupwise.reward.text import content_text

Messages = list[dict[str, Any]]

# The mark stands for the policy's turn where only the text after it is needed; no template writes it by itself.
_MARK = "\u2402the policy's turn\u2403"
_PROBE = "resultofatool"


@final
class Chat:
    """The encoding of prompts and of an environment's answers as token ids.

    Args:
        tokenizer: a tokenizer of transformers.
        config: when the template is used.
        tools: JSON schemas of the tools that the template writes into every prompt.

    Raises:
        ConfigError: a template is asked for and the tokenizer has none, or it writes no tools or no results.
    """

    def __init__(self, tokenizer: Any, config: ChatConfig, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self.tokenizer, self.config, self.tools = tokenizer, config, list(tools)
        if config.use == "always":
            self._need_template("chat.use = 'always'")
        if self.tools:
            self._need_template("domain.environment shows tools")
            self._check_tools()

    @property
    def template(self) -> str:
        """The chat template's text; of several, the one that is used here."""
        return self.tokenizer.get_chat_template(tools=self.tools or None)

    def messages(self, prompt: str | Sequence[Mapping[str, Any]]) -> Messages | None:
        """Returns the prompt as messages; None where it stays a text."""
        if isinstance(prompt, str):
            if self.config.use != "always" and self.tools:
                raise ConfigError(
                    f"the prompt {prompt[:60]!r} is a text, and tools are shown by the chat template; write chat.use ="
                    " 'always', or give prompts as lists of messages"
                )
            if self.config.use != "always":
                return None
            messages: Messages = [{"role": "user", "content": prompt}]
        else:
            if self.config.use == "never":
                raise ConfigError(
                    "a prompt is a list of messages and chat.use = 'never'; write chat.use = 'auto', or give texts"
                )
            self._need_template("a prompt is a list of messages")
            # Many templates write a list of parts as Python prints it.
            messages = [
                message | {"content": content_text(message["content"])}
                if isinstance(message.get("content"), list | tuple)
                else message
                for message in without_nulls(prompt)
            ]
        if self.config.system is not None and all(message["role"] != "system" for message in messages):
            messages.insert(0, {"role": "system", "content": self.config.system})
        return messages

    def encode_prompt(self, prompt: str | Sequence[Mapping[str, Any]]) -> list[int]:
        """Encodes a prompt up to the place where the policy begins to write."""
        messages = self.messages(prompt)
        if messages is None:
            return encode_prompts(self.tokenizer, [str(prompt)])[0]
        return encode_prompts(self.tokenizer, [self._render(messages)], rendered=True)[0]

    def encode_text(self, text: str) -> list[int]:
        """Encodes a turn of the policy, without special tokens around it."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def encode_turn(self, prompt: str | Sequence[Mapping[str, Any]], text: str, ends: Sequence[int]) -> list[int]:
        """Encodes a turn of the policy and its end: in a chat, what the template writes after an assistant's message,
        up to a token at which sampling ends; elsewhere the tokenizer's `eos_token`.

        Args:
            prompt: the conversation's prompt, which decides whether it is a chat.
            text: of the turn; one that ends with such a token gets no other.
            ends: ids that end a turn by themselves.
        """
        ids = self.encode_text(text)
        if ids and ids[-1] in ends:
            return ids
        if self.messages(prompt) is not None and (end := self._written_end(self._after_turn, ends)):
            # Encoded as one text, since a template may begin the end with a space.
            ended = self.encode_text(text + end)
            if ended and ended[-1] in ends:
                return ended
        eos = self.tokenizer.eos_token_id
        return [*ids, ends[0] if eos is None else eos]

    def reply_message(self, text: str) -> dict[str, Any]:
        """Returns an environment's text as a message; beside tools, as the result of one."""
        if not self.tools:
            return {"role": self.config.reply_role, "content": text}
        name = self.tools[0]["function"]["name"]
        return {"role": "tool", "name": name, "content": text, "tool_call_id": "000000000"}

    def encode_reply(
        self, prompt: str | Sequence[Mapping[str, Any]], replies: Sequence[Mapping[str, Any]], end: int | None
    ) -> list[int]:
        """Encodes an environment's answer up to the place where the policy goes on.

        Args:
            prompt: the conversation's prompt, which decides whether it is a chat.
            replies: the environment's messages; outside a chat, their texts alone.
            end: the token that ended the policy's turn, which the template would write once more; None where none did.
        """
        messages = self.messages(prompt)
        if messages is None:
            return encode_middle(self.tokenizer, "".join(message["content"] for message in replies))
        return encode_middle(self.tokenizer, self._continuation(messages, replies, end))

    def _continuation(self, messages: Messages, replies: Sequence[Mapping[str, Any]], end: int | None) -> str:
        plain = [
            {**message, "content": self._without_control(message["content"])} if message["role"] == "tool" else message
            for message in replies
        ]
        # The policy goes on with a message that the prompt began.
        *before, last = messages
        begun = last["role"] == "assistant" and not last.get("tool_calls")
        said = {"role": "assistant", **(last if begun else {})}
        said["content"] = said.get("content", "") + _MARK
        turn = [*(before if begun else messages), said, *plain]
        _, mark, continuation = self._render(turn).rpartition(_MARK)
        if not mark:
            raise ConfigError(
                "the tokenizer's chat template does not write an assistant's message as it is, so that a conversation"
                " cannot go on; write chat.use = 'never'"
            )
        return continuation if end is None else continuation.removeprefix(self._written_end(continuation, [end]))

    @cached_property
    def _after_turn(self) -> str:
        """What the template writes after the last message, one of an assistant; empty where it does not take one."""
        turn: Messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _MARK}]
        try:
            _, mark, after = self._render(turn, opens_turn=False).rpartition(_MARK)
        except ConfigError:
            return ""
        return after if mark else ""

    def _written_end(self, after: str, ends: Sequence[int]) -> str:
        """Returns the end of a turn at the start of what follows it, with the white space before it; empty where none
        stands there. A model may end its turns with another token than the tokenizer's eos_token (Gemma's
        <end_of_turn>, Phi-3's <|end|>).
        """
        space = after[: len(after) - len(after.lstrip())]
        for end in ends:
            if (text := self.tokenizer.decode([end])) and after.startswith(space + text):
                return space + text
        return ""

    def _without_control(self, text: str) -> str:
        """Breaks the texts of control tokens in the result of a tool, so that no result ends its own message."""
        for token in self._control_texts:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    @cached_property
    def _control_texts(self) -> list[str]:
        # Added tokens that are mere words, of one letter or of spaces, control nothing.
        return [token for token in self.tokenizer.get_added_vocab() if len(token) > 1 and token[0] in "<["]

    def _check_tools(self) -> None:
        """Refuses a template that leaves out tools or their results."""
        question: Messages = [{"role": "user", "content": "?"}]
        names = [tool["function"]["name"] for tool in self.tools]
        prompt = self._render(question)
        if missing := [name for name in names if name not in prompt]:
            raise ConfigError(
                f"the tokenizer's chat template does not write the tools ({', '.join(missing)}); write"
                " domain.environment.kind = 'tools', whose calls need no template, or take a model that calls tools"
            )
        if _PROBE not in self._continuation(question, [self.reply_message(_PROBE)], end=None):
            raise ConfigError(
                "the tokenizer's chat template does not write messages of the role tool; write domain.environment.kind"
                " = 'tools', whose results need no template, or take a model that calls tools"
            )

    def _render(self, messages: Messages, *, opens_turn: bool = True) -> str:
        settings = {**({"tools": self.tools} if self.tools else {}), **self.config.template_arguments}
        return render_chat(self.tokenizer, messages, settings, opens_turn=opens_turn)

    def _need_template(self, reason: str) -> None:
        if not getattr(self.tokenizer, "chat_template", None):
            name = getattr(self.tokenizer, "name_or_path", "") or "this model"
            raise ConfigError(
                f"{reason}, but the tokenizer of {name} has no chat template; write chat.use = 'never' and give prompts"
                " as texts"
            )
