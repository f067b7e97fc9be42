"""Prompts as token ids: plain text, or messages through the tokenizer's chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from groupwise.config import ConfigError
from groupwise.domain.language.config import ChatConfig

Messages = list[dict[str, Any]]

# The mark stands for the policy's turn where only the text after it is needed; no template writes it by itself.
_MARK = "\u2402the policy's turn\u2403"


@final
class Chat:
    """The encoding of prompts and of an environment's answers as token ids.

    Args:
        tokenizer: a tokenizer of transformers.
        config: when the template is used.

    Raises:
        ConfigError: a template is asked for and the tokenizer has none.
    """

    def __init__(self, tokenizer: Any, config: ChatConfig) -> None:
        self.tokenizer, self.config = tokenizer, config
        if config.use == "always":
            self._need_template("chat.use = 'always'")

    def messages(self, prompt: str | Sequence[Mapping[str, Any]]) -> Messages | None:
        """Returns the prompt as messages; None where it stays a text."""
        if isinstance(prompt, str):
            if self.config.use != "always":
                return None
            messages: Messages = [{"role": "user", "content": prompt}]
        else:
            if self.config.use == "never":
                raise ConfigError(
                    "a prompt is a list of messages and chat.use = 'never'; write chat.use = 'auto', or give texts"
                )
            self._need_template("a prompt is a list of messages")
            messages = [dict(message) for message in prompt]
        if self.config.system is not None and all(message["role"] != "system" for message in messages):
            messages.insert(0, {"role": "system", "content": self.config.system})
        return messages

    def encode_prompt(self, prompt: str | Sequence[Mapping[str, Any]]) -> list[int]:
        """Encodes a prompt up to the place where the policy begins to write."""
        messages = self.messages(prompt)
        if messages is None:
            return list(self.tokenizer.encode(prompt))
        # The template writes its own special tokens.
        return self.encode_text(self._render(messages, add_generation_prompt=True))

    def encode_text(self, text: str) -> list[int]:
        """Encodes a text in the middle, without special tokens around it."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def encode_reply(self, prompt: str | Sequence[Mapping[str, Any]], reply: str, ended: bool) -> list[int]:
        """Encodes an environment's answer up to the place where the policy goes on.

        Args:
            prompt: the conversation's prompt, which decides whether it is a chat.
            reply: the environment's text.
            ended: whether the policy's turn ended with the end-of-sequence token, which the template would write
                itself.
        """
        messages = self.messages(prompt)
        if messages is None:
            return self.encode_text(reply)
        turn = [*messages, {"role": "assistant", "content": _MARK}, {"role": self.config.reply_role, "content": reply}]
        _, mark, continuation = self._render(turn, add_generation_prompt=True).rpartition(_MARK)
        if not mark:
            raise ConfigError(
                "the tokenizer's chat template does not write an assistant's message as it is, so that a conversation"
                " cannot go on; write chat.use = 'never'"
            )
        if ended and self.tokenizer.eos_token and continuation.startswith(self.tokenizer.eos_token):
            continuation = continuation[len(self.tokenizer.eos_token) :]
        return self.encode_text(continuation)

    def _render(self, messages: Messages, add_generation_prompt: bool) -> str:
        try:
            return self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=add_generation_prompt, **self.config.template_arguments
            )
        except Exception as error:  # a template raises errors of any kind, mostly about messages
            raise ConfigError(f"the tokenizer's chat template refuses {str(messages)[:200]}: {error}") from error

    def _need_template(self, reason: str) -> None:
        if not getattr(self.tokenizer, "chat_template", None):
            name = getattr(self.tokenizer, "name_or_path", "") or "this model"
            raise ConfigError(
                f"{reason}, but the tokenizer of {name} has no chat template; write chat.use = 'never' and give prompts"
                " as texts"
            )
