"""Prompts as token ids: plain text, or messages through the tokenizer's chat template."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from groupwise.causal_lm.prompt import encode_middle, encode_prompts, render_chat, without_nulls
from groupwise.causal_lm.sampler import written_texts
from groupwise.causal_lm.small import EOS, PAD, UNKNOWN
from groupwise.config import ConfigError
from groupwise.domain.language.config import ChatConfig
from groupwise.domain.language.environment import EnvironmentKind
from groupwise.domain.language.tools import THOUGHT_CLOSES, THOUGHT_OPENS
from groupwise.domain.protocol import Samples
from groupwise.reward.completions import ParsedConversation, ParsedText, content_text

Messages = list[dict[str, Any]]

# The mark replaces the policy's turn where only the text after it is needed. No template writes the mark by itself.
_MARK = "\u2402the policy's turn\u2403"
_PROBE = "resultofatool"


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
        """The chat template's text; if there are several templates, the one that is used here."""
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
        return self.encode_prompts([prompt])[0]

    def encode_prompts(self, prompts: Sequence[str | Sequence[Mapping[str, Any]]]) -> list[list[int]]:
        """Encodes several prompts, those that are texts in one call of the tokenizer, and the rendered ones in one."""
        messages = [self.messages(prompt) for prompt in prompts]
        texts = [str(prompt) for prompt, chat in zip(prompts, messages, strict=True) if chat is None]
        rendered = [self._render(chat) for chat in messages if chat is not None]
        of_texts = iter(encode_prompts(self.tokenizer, texts))
        of_chats = iter(encode_prompts(self.tokenizer, rendered, rendered=True))
        return [next(of_texts if chat is None else of_chats) for chat in messages]

    def encode_text(self, text: str) -> list[int]:
        """Encodes a turn of the policy, without special tokens around it."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def encode_turn(self, prompt: str | Sequence[Mapping[str, Any]], text: str, ends: Sequence[int]) -> list[int]:
        """Encodes a turn of the policy and its end: in a chat, what the template writes after an assistant's message,
        up to a token at which sampling ends; elsewhere the tokenizer's `eos_token`.

        Args:
            prompt: the conversation's prompt, which decides whether it is a chat.
            text: the text of the turn; one that ends with such a token gets no other.
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
        """Returns an environment's text as a message; where there are tools, as the result of one."""
        if not self.tools:
            return {"role": self.config.reply_role, "content": text}
        name = self.tools[0]["function"]["name"]
        return {"role": "tool", "name": name, "content": text, "tool_call_id": "000000000"}

    def encode_reply(
        self, prompt: str | Sequence[Mapping[str, Any]], replies: Sequence[Mapping[str, Any]], end: int | None
    ) -> list[int]:
        """Encodes an environment's answer up to the place where the policy continues.

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
        # The prompt began this message, and the policy continues it.
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
        """The text that the template writes after an assistant's last message; empty if it takes no such message."""
        turn: Messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _MARK}]
        try:
            _, mark, after = self._render(turn, opens_turn=False).rpartition(_MARK)
        except ConfigError:
            return ""
        return after if mark else ""

    def remarks_of_ends(self, prompts: Sequence[str | Sequence[Mapping[str, Any]]], ends: Sequence[int]) -> list[str]:
        """Returns a remark where the template ends a chat's turn with a token at which sampling goes on.

        Args:
            prompts: those of the run.
            ends: the tokens at which sampling ends.
        """
        after = self._after_turn.lstrip()
        token = max((text for text in self._control_texts if after.startswith(text)), key=len, default="")
        if not token or self._written_end(self._after_turn, ends):
            return []
        if all(self.messages(prompt) is None for prompt in prompts):
            return []
        number = self.tokenizer.convert_tokens_to_ids(token)
        known = ", ".join(repr(text) for text in self.tokenizer.convert_ids_to_tokens(list(ends)))
        return [
            f"the chat template ends a turn with {token!r}, and sampling goes on behind it (it ends at {known}):"
            f" answers run to the length limit; add {number} to eos_token_id in generation_config.json"
        ]

    def _written_end(self, after: str, ends: Sequence[int]) -> str:
        """Returns the text that ends a turn, found at the start of the text after it, including the white space before
        it; empty where there is none. A model may end its turns with another token than the tokenizer's eos_token
        (Gemma's <end_of_turn>, Phi-3's <|end|>).
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
        # Added tokens that are plain words, single letters or spaces control nothing.
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


# Parses turns into messages by the model's response template, which separates thoughts and calls from the rest.

_BEGINS = "\0"
"""A placeholder for the head of an assistant's turn, which every chat template writes differently."""
_TOOL_TURN = {
    "defaults": {"role": "assistant"},
    "start_anchor": _BEGINS,
    "fields": {
        "reasoning_content": {"open": THOUGHT_OPENS, "close_pattern": rf"{THOUGHT_CLOSES}\s*", "content": "text"},
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"content": "text"},
    },
}
"""The response template of turns with calls between `<tool_call>` marks, for tokenizers whose folder has none."""


def reads_turns(tokenizer: Any) -> bool:
    """Returns whether a tokenizer's folder states how turns are read (`response_template` in tokenizer_config.json)."""
    return getattr(tokenizer, "response_template", None) is not None


def unreadable_template(tokenizer: Any) -> list[str]:
    """Returns a remark if a tokenizer's response template cannot read even a plain answer. Without this test a broken
    template would look like turns that break its format.
    """
    ids = tokenizer.encode("4", add_special_tokens=False)
    try:
        if reads_turns(tokenizer):
            _message(tokenizer, ids, ids)
    except (ValueError, TypeError) as error:
        return [
            f"response_template: the tokenizer's reads not even the answer '4' ({' '.join(str(error).split())[:200]});"
            " messages are given to rewards as they were written; mend it in tokenizer_config.json, or take it out"
        ]
    return []


def read_texts(tokenizer: Any, samples: Samples, texts: Sequence[str]) -> Sequence[str]:
    """Returns the texts of completions, in a chat each with the message that is read in it.

    Args:
        tokenizer: one whose folder states how turns are read (`reads_turns`).
    """
    rows = zip(samples.payload["tokens"].tolist(), samples.payload["length"].tolist(), strict=True)
    ids = [tokens[:length] for tokens, length in rows]
    members = zip(texts, ids, samples.payload["prompt_ids"], samples.group.tolist(), strict=True)
    return [
        text
        if isinstance(samples.prompts[group].columns["prompt"], str)
        else parsed_turn(tokenizer, text, turn, prefix)
        for text, turn, prefix, group in members
    ]


def parsed_turn(tokenizer: Any, text: str, ids: Sequence[int], prefix: Sequence[int]) -> ParsedText:
    """Returns the text of a turn with its message, as TRL reads it: `content`, `reasoning_content` or another field
    that the response template names, and `tool_calls`. A turn that cannot be read is a message of its text.

    Args:
        tokenizer: one with a `response_template`.
        text: the text of the turn, without special tokens.
        ids: its tokens.
        prefix: the tokens before it; a template may have opened a thought there.
    """
    message: Mapping[str, Any] = {"role": "assistant", "content": text}
    try:
        if ids:
            message = _message(tokenizer, list(ids), list(prefix))
    # The model wrote the turn, and may break every rule of its own format.
    except (ValueError, TypeError, RecursionError):
        pass
    return ParsedText(text, message)


def parsed_tool_turn(tokenizer: Any, text: str, turn: str, *, thinking: bool) -> Mapping[str, Any]:
    """Returns the message of a turn with calls between `<tool_call>` marks, thoughts apart, as TRL reads it where tools
    are given. A turn that cannot be read is a message of its text.

    Args:
        tokenizer: any that decodes.
        text: the text of the turn, without special tokens.
        turn: the same with the marks that the tokenizer calls special, without the one that ends it.
        thinking: whether the chat template opened a thought before it.
    """
    try:
        return _message(tokenizer, turn, _BEGINS + THOUGHT_OPENS * thinking, _TOOL_TURN)
    # The model wrote the turn, and may break every rule of its own format.
    except (ValueError, TypeError, RecursionError):
        return {"role": "assistant", "content": text}


def _message(tokenizer: Any, turn: Any, prefix: Any, template: Mapping[str, Any] | None = None) -> dict[str, Any]:
    message = tokenizer.parse_response(turn, template, prefix=prefix)
    if message is None:
        raise ValueError("nothing was read")
    content = message.get("content")
    message["content"] = content.removesuffix(tokenizer.eos_token or "") if isinstance(content, str) else content or ""
    for call in message.get("tool_calls") or ():
        function = call.get("function", call)
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise TypeError("a call without a name")
        if function.get("arguments") is None:
            function["arguments"] = {}
    return message


Message = dict[str, Any]
_MARK_TOKENS = 16
"""An upper bound on the tokens of a thought mark and the space after it, if they are read letter by letter."""


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
        # Calls inside an unclosed thought are not made.
        action = "" if self._reads_special_tokens and self._ends_in_thought(member, marked) else marked
        try:
            step = self.environments[member].step(action)
        except Exception as error:
            error.add_note(
                f"environment.step raised in member {member} on the turn {text!r} after the prompt"
                f" {self.columns[member]['prompt']!r}"
            )
            raise
        self._record_turn(member, turn, texts, dict(step.action or {"role": "assistant", "content": text}))
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
                self._record_turn(member, turn, texts, {"role": "assistant", "content": texts[0]})

    def _texts(self, turn: Sequence[int]) -> tuple[str, str]:
        """Returns the text of a turn without the token that ended it, and the text that the environment reads. The
        latter has the marks of special tokens if the environment reads those.
        """
        (text,) = written_texts(self.chat.tokenizer, [turn], self.eos)
        said = turn[:-1] if turn[-1] in self.eos else turn
        return text, self.chat.tokenizer.decode(said, skip_special_tokens=False) if self._reads_special_tokens else text

    def _record_turn(self, member: int, turn: Sequence[int], texts: tuple[str, str], written: Message) -> None:
        """Appends a turn twice: as the policy wrote it, and as the response template parses it."""
        self.messages[member].append(written)
        self._parsed[member].append(self._read(member, turn, texts, written))

    def _ends_in_thought(self, member: int, turn: str) -> bool:
        """Returns whether a turn leaves a thought open, which the turn or the chat template began."""
        opened = THOUGHT_OPENS * self._begins_in_thought(member)
        _, mark, thought = (opened + turn).rpartition(THOUGHT_OPENS)
        return bool(mark) and THOUGHT_CLOSES not in thought

    def _begins_in_thought(self, member: int) -> bool:
        """Returns whether the chat template began a thought before a turn."""
        before = self.chat.tokenizer.decode(self._before[member][-_MARK_TOKENS:], skip_special_tokens=False)
        return before.rstrip().endswith(THOUGHT_OPENS)

    def _read(self, member: int, turn: Sequence[int], texts: tuple[str, str], written: Message) -> Message:
        """Returns a turn as the response template reads it: with its calls, or with its thoughts separated if calls are
        marked. Returns it as it was written if there are neither, or if the prompt is not a chat.
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


# Tokens one by one, as people read them.

_WORD_START = "\u2581"
"""The sign that SentencePiece writes for the space before a word; decoding a single token drops it."""


def token_texts(tokenizer: Any, rows: Sequence[Sequence[int]]) -> list[list[str]]:
    """Decodes each token separately; special tokens become their names. A token that is part of a character becomes the
    replacement character.

    Args:
        tokenizer: of a transformers model.
        rows: token ids.

    Returns:
        one text a token.

    Example:
        >>> from groupwise.domain.language.chat import build_tokenizer
        >>> tokenizer = build_tokenizer("words", ["answer 3"])
        >>> token_texts(tokenizer, [[*tokenizer.encode("answer 3"), tokenizer.eos_token_id]])
        [['answer', '3', '<|end|>']]
    """
    token_ids = sorted({token for row in rows for token in row})
    texts = tokenizer.batch_decode([[token] for token in token_ids], clean_up_tokenization_spaces=False)
    starts = [str(raw).startswith(_WORD_START) for raw in tokenizer.convert_ids_to_tokens(token_ids)]
    spaced = [
        " " + text if start and not text.startswith(" ") else text for text, start in zip(texts, starts, strict=True)
    ]
    text_of = dict(zip(token_ids, spaced, strict=True))
    return [[text_of[token] for token in row] for row in rows]


# A tokenizer made from the texts that a model with fresh weights will read and write.
# The pattern takes whole tags, words and punctuation with the space before them, single digits, and any other
# character, so that the pieces join to the text.
_PIECES = r" ?</?\w+>| ?[^\W\d_]+| ?\d| ?[^\w\s]|\s|_"


def build_tokenizer(kind: str, texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Builds a tokenizer whose vocabulary is what the texts contain, and nothing else.

    Args:
        kind: `words`, `pieces` or `characters`.
        texts: everything it must be able to read and write; the order does not matter.

    Example:
        >>> words = build_tokenizer("words", ["ball 3 ?", "answer 3"])
        >>> words.decode(words.encode("ball 3 ?") + [words.eos_token_id], skip_special_tokens=True)
        'ball 3 ?'
        >>> pieces = build_tokenizer("pieces", ["<think>so, 12.</think>"])
        >>> pieces.decode(pieces.encode("<think>so, 12.</think>"))
        '<think>so, 12.</think>'
    """
    split, decoder = {
        "words": (pre_tokenizers.WhitespaceSplit(), None),
        "pieces": (pre_tokenizers.Split(Regex(_PIECES), "isolated"), decoders.Fuse()),
        "characters": (pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoders.Fuse()),
    }[kind]
    if kind == "words":
        # Thousands of texts repeat the same few words.
        texts = {words for text in texts for words in text.split(" ")}
    pieces: set[str] = set()
    for text in texts:
        pieces.update(piece for piece, _ in split.pre_tokenize_str(text))
    vocabulary = {
        token: number for number, token in enumerate([PAD, EOS, UNKNOWN, *sorted(pieces - {PAD, EOS, UNKNOWN})])
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = split  # type: ignore[assignment]
    if decoder is not None:
        tokenizer.decoder = decoder  # type: ignore[assignment]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN, clean_up_tokenization_spaces=False
    )
