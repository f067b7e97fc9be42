"""Builds prompts from rows: columns are checked, held-out prompts are set apart, demonstrations are written."""

import hashlib
import itertools
import json
import math
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.causal_lm.prompt import cut_left, encode_middle
from groupwise.config import ConfigError, check_plain, nearest, user_callable, why_failed
from groupwise.domain.exported import filled_columns
from groupwise.domain.language.chat import Chat
from groupwise.domain.language.config import DataConfig, DemonstrationsConfig, LanguageConfig
from groupwise.domain.language.environment import EnvironmentKind
from groupwise.domain.language.source import Row, Source
from groupwise.domain.language.source.base import Nothing, distinct
from groupwise.domain.protocol import Prompt
from groupwise.reward.completions import excerpt

# The stride between the seeds of repeats, so that two data seeds share none.
_SEED_STRIDE = 1_000_003


@dataclass(frozen=True)
class Demonstration:
    """A prompt and its continuation: turns of the policy and of the environment alternate, and the first and last are
    the policy's.
    """

    prompt: Prompt
    turns: tuple[str, ...]


@dataclass(frozen=True)
class Splits:
    """Prompts trained on, evaluated on (by the name of the set; the only set has the empty name) and demonstrated, and
    the number of rows that were left out of training because they are evaluated on as well.
    """

    train: tuple[Prompt, ...]
    evaluation: Mapping[str, tuple[Prompt, ...]]
    demonstrations: tuple[Demonstration, ...] = ()
    num_removed: int = 0

    @property
    def held_out(self) -> tuple[Prompt, ...]:
        """The prompts of all evaluation sets, one set after another."""
        return tuple(prompt for prompts in self.evaluation.values() for prompt in prompts)


def split(data: DataConfig, demonstrations: DemonstrationsConfig | None = None) -> Splits:
    """Reads the source and divides it: held out first, then trained on, then demonstrated.

    Raises:
        ConfigError: no rows at all, fewer than asked for, a column that is missing (names those present), a prompt that
            is not a text.

    Example:
        >>> from groupwise.domain.language.source import Cups
        >>> splits = split(DataConfig(source=Cups(), num_train=3, num_held_out=2), DemonstrationsConfig(num=1))
        >>> len(splits.train), len(splits.held_out), splits.demonstrations[0].turns
        (3, 2, ('5 5 1 1 1 2 2 answer 2',))
    """
    if isinstance(data.source, Nothing):
        return Splits((), {"": ()})
    source, num_demonstrated = data.source, (demonstrations.num or 0) if demonstrations is not None else 0
    sets = {name: _evaluation_rows(name, set_source, data) for name, set_source in data.evaluation_sources.items()}
    held_out = [row for set_rows in sets.values() for row in set_rows] or source.held_out_rows(
        data.held_out_of(None), data.seed
    )
    from_elsewhere = held_out is not None
    num_rows_needed = (data.num_train or 0) + num_demonstrated + (0 if from_elsewhere else data.held_out_of(None))
    rows = (
        _distinct_rows(data, num_rows_needed)
        if source.endless
        else _rows_with_prompts(source.rows(None, data.seed), data)
    )
    num_held_out = data.held_out_of(None if source.endless else len(rows))
    if not rows:
        raise ConfigError(
            f"{_source_text(source)} holds no rows; give a source with at least one prompt for training and one held"
            " out"
        )
    num_rows = len(rows)
    if held_out is None:
        held_out, rows = _first_prompts(rows, num_held_out, source)
    elif not sets:
        held_out = _rows_with_prompts(held_out, data)
    held_out_ids = {source.identity(row) for row in held_out}
    train_rows = [row for row in rows if source.identity(row) not in held_out_ids]
    num_removed = len(rows) - len(train_rows)
    num_train = max(len(train_rows) - num_demonstrated, 0) if data.num_train is None else data.num_train
    train, demonstrated_rows = train_rows[:num_train], train_rows[num_train : num_train + num_demonstrated]
    if from_elsewhere and not train_rows:
        raise ConfigError(
            f"data: all {num_rows} rows of {_source_text(source)} are evaluated on too, and those are never"
            " trained on; give other prompts to train on, or a smaller evaluation set"
        )
    if (
        not train
        or not held_out
        or (source.endless and len(train) < num_train)
        or len(demonstrated_rows) < num_demonstrated
    ):
        settings_text = f"num_train = {data.num_train}, num_held_out = {num_held_out}" + (
            f", demonstrations.num = {num_demonstrated}" if num_demonstrated else ""
        )
        num_distinct = len({source.identity(row) for row in [*held_out, *rows]})
        raise ConfigError(
            f"data: {settings_text} ask for more different prompts than there are: the {num_rows} rows of"
            f" {_source_text(source)} hold {num_distinct}; write smaller numbers, or"
            " evaluate on rows of their own (domain.data.evaluation, from Python eval_data=ROWS)"
        )
    examples = (
        ()
        if demonstrations is None
        else tuple(_demonstrations(demonstrated_rows or train, demonstrations, source, data.seed))
    )
    evaluation = {name: _prompts(set_rows, source) for name, set_rows in (sets or {"": held_out}).items()}
    return Splits(_prompts(train, source), evaluation, examples, num_removed)


def _evaluation_rows(name: str, source: Source, data: DataConfig) -> list[Row]:
    """Reads all rows of an evaluation set, with their prompts."""
    num = data.held_out_of(None) if source.endless else None
    try:
        rows = _rows_with_prompts(source.rows(num, data.seed), data)
    except ConfigError as error:
        # A file names the key of the training prompts, since it is read in the same way.
        raise ConfigError(str(error).replace("data.source.paths", f"data.evaluation.{name}")) from None
    if not rows:
        raise ConfigError(f"data.evaluation.{name}: {_source_text(source)} holds no rows; give at least one prompt")
    return rows


def _distinct_rows(data: DataConfig, num: int) -> list[Row]:
    """Draws `num` rows of an endless source whose prompts differ. Two rows may give the same prompt, so more rows are
    drawn until `num` prompts differ.
    """
    rows, num_drawn = [], num
    for _ in range(4):
        rows = distinct(
            iter(_rows_with_prompts(data.source.rows(num_drawn, data.seed), data)), data.source.identity, num
        )
        if len(rows) == num:
            break
        # The share of repeats so far shows how many rows are needed; some more are drawn, for later rows repeat more
        # often.
        num_drawn = min(math.ceil(1.2 * num_drawn * num / max(len(rows), 1)), 3 * num_drawn)
    return rows


class _Template(string.Formatter):
    """Formats like `str.format`, but writes nothing for a null, or for the NaN of an empty cell."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        value = _without_nulls(value)
        return None if value is None else super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        return "" if value is None else super().format_field(value, format_spec)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, Mapping):
        return {key: kept for key, entry in value.items() if (kept := _without_nulls(entry)) is not None}
    if isinstance(value, list | tuple):
        return type(value)("" if (kept := _without_nulls(entry)) is None else kept for entry in value)
    return value


def _source_text(source: Source) -> str:
    """Writes a source as a configuration does: its kind and what differs from the defaults."""
    settings = {"kind": source.kind, **source.model_dump(mode="json", exclude_defaults=True)}  # type: ignore[attr-defined]
    return f"data.source = {{{', '.join(f'{key} = {json.dumps(value)}' for key, value in settings.items())}}}"


def _row_text(row: Mapping[str, Any]) -> str:
    """Quotes a row for a message. A row is found in its file by its content; its place changes with shuffling."""
    return f"the row {excerpt(str(dict(row)), 120)}"


def _rows_with_prompts(rows: Sequence[Row], data: DataConfig) -> list[Row]:
    """Adds three things to every row: its `prompt`, its `answer` where a column is named for it, and None for columns
    that only other rows have.
    """
    prompted_rows = []
    row_map = None if data.map is None else user_callable(data.map, "data.map", write="a function of a row")
    for source_row in rows:
        row = dict(source_row)
        if row_map is not None:
            row = _call_user_function(row_map, f"data.map = {data.map!r}", row)
            if not isinstance(row, dict):
                raise ConfigError(
                    f"data.map = {data.map!r} gives {type(row).__name__} for {_row_text(source_row)}; write a function"
                    " that returns the row, a dict"
                )
        if data.answer_column is not None:
            row["answer"] = column(row, data.answer_column, "data.answer_column")
        if data.prompt_template is not None:
            try:
                row["prompt"] = _Template().vformat(data.prompt_template, (), row)
            except (KeyError, IndexError, AttributeError, ValueError, TypeError) as error:
                raise ConfigError(
                    f"data.prompt_template = {data.prompt_template!r} cannot be filled in for {_row_text(row)}:"
                    f" {type(error).__name__}: {error}; columns present: {', '.join(sorted(row))}; write a brace that"
                    " is meant as itself twice"
                ) from error
        else:
            row["prompt"] = column(row, data.prompt_column, "data.prompt_column")
        _check_prompt(row)
        # Rows of files were checked where their line is known; a task, a library or a function may also make text that
        # UTF-8 cannot hold.
        try:
            check_plain(row, config=False)
        except ConfigError as error:
            raise ConfigError(error.problems, source=f"data: {_row_text(row)}") from None
        prompted_rows.append(row)
    return filled_columns(prompted_rows)


def column(row: Mapping[str, Any], name: str, key: str) -> Any:
    """Returns the value of a column.

    Raises:
        ConfigError: there is none of that name; names those present.
    """
    if name not in row:
        close = nearest(name, list(row))
        hint = f"; did you mean {close}?" if close else ""
        raise ConfigError(
            f"{key} = {name!r}: the data have no such column; columns present: {', '.join(sorted(row))}{hint};"
            f" {_row_text(row)}"
        )
    return row[name]


def _call_user_function(function: Callable[..., Any], key: str, row: Row, *more: int) -> Any:
    try:
        return function(row, *more)
    # The function is the user's and may fail in any way.
    except Exception as error:
        raise ConfigError(
            f"{key} fails for {_row_text(row)}: {why_failed(error)}; columns present: {', '.join(sorted(row))}"
        ) from error


def _check_prompt(row: Row) -> None:
    prompt = row["prompt"]
    if isinstance(prompt, str):
        if not prompt.strip():
            raise ConfigError(f"data: the prompt is empty in {_row_text(row)}; take it out or write a prompt_template")
        return
    chat = (
        isinstance(prompt, Sequence)
        and len(prompt) > 0
        and all(isinstance(message, Mapping) and {"role", "content"} <= set(message) for message in prompt)
    )
    if not chat:
        raise ConfigError(
            f"data: the prompt is {excerpt(repr(prompt))} (of type {type(prompt).__name__}) in {_row_text(row)}; a"
            ' prompt is a text, or a list of messages such as {"role": "user", "content": "2 + 2?"}'
        )
    for message in prompt:
        if problem := _problem_of_content(message):
            raise ConfigError(f"data: a message of the role {message['role']!r} {problem}; {_row_text(row)}")


def _problem_of_content(message: Mapping[str, Any]) -> str:
    """Describes a content that a chat template would print as a Python object; empty if the content is text."""
    content = message["content"]
    if isinstance(content, str) or (content is None and message.get("tool_calls")):
        return ""
    if not isinstance(content, list | tuple):
        return f"has the content {excerpt(repr(content))} (of type {type(content).__name__}); write a text"
    for part in content:
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str) or part.get("type", "text") != "text":
            return (
                f"has the part {excerpt(repr(part))}, and a language model here reads texts; write"
                ' {"type": "text", "text": "..."}'
            )
    return ""


def _first_prompts(rows: Sequence[Row], num: int, source: Source) -> tuple[list[Row], list[Row]]:
    """Splits off the rows of the first `num` different prompts, one row a prompt; returns them and the rest."""
    seen: set[str] = set()
    first_rows = []
    for place, row in enumerate(rows):
        if len(first_rows) == num:
            return first_rows, list(rows[place:])
        if source.identity(row) not in seen:
            seen.add(source.identity(row))
            first_rows.append(row)
    return first_rows, []


def _prompt(row: Row, source: Source) -> Prompt:
    return Prompt(hashlib.blake2b(source.identity(row).encode(), digest_size=8).hexdigest(), row)


def _prompts(rows: Sequence[Row], source: Source) -> tuple[Prompt, ...]:
    """Makes prompts of rows. A prompt that occurs several times in the data gets a different key each time."""
    counts: dict[str, int] = {}
    prompts = []
    for row in rows:
        prompt = _prompt(row, source)
        repeat = counts.get(prompt.key, 0)
        counts[prompt.key] = repeat + 1
        prompts.append(Prompt(f"{prompt.key}-{repeat}", row) if repeat else prompt)
    return tuple(prompts)


def _demonstrations(
    rows: Sequence[Row], config: DemonstrationsConfig, source: Source, seed: int
) -> list[Demonstration]:
    writer: Callable[[Row, int], Any] = source.demonstration
    if config.writer is not None:
        path = config.writer
        user_writer = user_callable(path, "demonstrations.writer", write="a function of a row and a seed")
        writer = lambda row, seed: _call_user_function(user_writer, f"demonstrations.writer = {path!r}", row, seed)  # noqa: E731
    elif config.column is not None:
        name = config.column
        writer = lambda row, seed: column(row, name, "demonstrations.column")  # noqa: E731
    demonstrations = []
    for row, repeat in itertools.product(rows, range(config.repeats)):
        # The first text of a prompt is the same whatever the number of repeats.
        written = writer(row, seed + repeat * _SEED_STRIDE)
        if written is None:
            raise ConfigError(
                f"demonstrations: a source of kind {source.kind!r} writes none itself; "  # type: ignore[attr-defined]
                "write demonstrations.column = the column with the text, or demonstrations.writer ="
                " 'package.module:function'"
            )
        turns = (written,) if isinstance(written, str) else tuple(written)
        if len(turns) % 2 == 0 or not all(isinstance(turn, str) for turn in turns):
            raise ConfigError(
                f"demonstrations: {turns!r} is neither a text nor an odd number of texts (the policy's, the"
                " environment's, ..., the policy's)"
            )
        demonstrations.append(Demonstration(_prompt(row, source), turns))
    return demonstrations


# Prompts as token ids, with a limit on their length and a count of what the limit cost.


@dataclass(frozen=True)
class Tokenized:
    """The prompts that fit into the length limit.

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
    for prompt, prompt_ids in zip(prompts, _encoded(prompts, chat, environment), strict=True):
        if not prompt_ids:
            raise ConfigError(
                f"data: the prompt {prompt.columns['prompt']!r} has no tokens; give every prompt at least one"
            )
        if limit is not None and len(prompt_ids) > limit:
            if overlong == "error":
                shown = excerpt(str(prompt.columns["prompt"]))
                raise ConfigError(
                    f"data: the prompt {shown!r} has {len(prompt_ids)} tokens and there is room for {limit}"
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


_AT_ONCE = 1000
"""Prompts in one call of the tokenizer, which costs as much as the encoding of several prompts."""


def _encoded(prompts: Sequence[Prompt], chat: Chat, environment: EnvironmentKind | None) -> Iterator[list[int]]:
    if environment is not None:
        yield from (encode(prompt, chat, environment) for prompt in prompts)
        return
    for start in range(0, len(prompts), _AT_ONCE):
        yield from chat.encode_prompts([prompt.columns["prompt"] for prompt in prompts[start : start + _AT_ONCE]])


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
