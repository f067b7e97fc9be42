"""A member of a group as data of a page: short keys, no value twice, and long texts cut."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.report.downsample import round_significant
from groupwise.report.pictures import SUFFIXES, Pictures
from groupwise.runs import is_number

MOST_CHARACTERS = 6000
"""Characters of one text on a page; of a longer text its beginning and its end stay."""
MOST_TOKENS = 1500
"""Tokens of one member on a page; of more tokens the first and the last stay."""

_PLACED_FIELDS = frozenset(
    (
        "prompt",
        "prompt_ids",
        "key",
        "text",
        "messages",
        "tokens",
        "token_ids",
        "token_log_prob",
        "token_log_ratio",
        "token_credit",
        "num_tokens",
    )
    + (
        "truncated",
        "settings",
        "group",
        "rewards",
        "reward",
        "advantage",
        "num_decisions",
        "log_ratio",
        "demonstrations",
        "picks",
        "answers",
        "sample",
    )
    + ("mode", "logged")
)
_NUMBERS = {"lp": "token_log_prob", "lr": "token_log_ratio", "cr": "token_credit"}


def member(record: Mapping[str, Any], reward_names: Sequence[str], root: Path, pictures: Pictures) -> dict[str, Any]:
    """Returns one record of `rollouts/` as data of the page.

    Args:
        record: one member's line of `rollouts/`; its values may be of any type, since user code wrote them.
        reward_names: names of the rewards, in the page's order.
        root: the run folder, to which paths of pictures are relative.
        pictures: collects the pictures of the page.

    Returns:
        `r` reward, `a` advantage, `p` the single rewards, `t` text, `k` tokens with `lp`, `lr`, `cr` (log-prob when
        sampled, log-ratio, credit) and, of a long list, the number `more` of tokens left out after the first `head`,
        `m` turns, `d` demonstrations with `o` the answer that the task model gave after them and `w` the answers that
        count as right, `i` pictures, `e` all remaining fields, `n` decisions, `l` mean log-ratio, `x` true where a
        limit cut the member off; a key is absent where its value is empty.

    Example:
        >>> member(
        ...     {"reward": 1.0, "advantage": 0.5, "text": "four", "rewards": {"right": 1.0}},
        ...     ["right"],
        ...     Path(),
        ...     Pictures(0),
        ... )
        {'r': 1, 'a': 0.5, 'p': [1], 't': 'four'}
    """
    rewards = record.get("rewards")
    member_data: dict[str, Any] = {
        "r": number(record.get("reward")),
        "a": number(record.get("advantage")),
        "p": [number(rewards.get(name)) if isinstance(rewards, Mapping) else None for name in reward_names],
    }
    count = record.get("num_decisions", record.get("num_tokens"))
    if is_number(count):
        member_data["n"] = number(count)
    if record.get("truncated") is True:
        member_data["x"] = True
    if number(record.get("log_ratio")):
        member_data["l"] = number(record.get("log_ratio"))
    if record.get("text") is not None:
        member_data["t"] = shortened(record["text"])
    member_data |= _tokens(record)
    if isinstance(turns := record.get("messages"), list):
        member_data["m"] = conversation(turns)
    if isinstance(examples := record.get("demonstrations"), list):
        member_data["d"] = [demonstration(example, root, pictures) for example in examples]
        member_data |= _answered(record)
    images, remaining_fields = {}, {}
    for name, value in record.items():
        if name in _PLACED_FIELDS:
            continue
        if isinstance(value, str) and value.lower().endswith(SUFFIXES):
            images[name] = pictures.add(root, value)
        elif value not in (None, "", [], {}):
            remaining_fields[name] = shortened(value, 600)
    if isinstance(logged := record.get("logged"), Mapping):
        remaining_fields |= {str(name): shortened(value, 600) for name, value in logged.items() if value is not None}
    if images:
        member_data["i"] = images
    if remaining_fields:
        member_data["e"] = remaining_fields
    return member_data


def number(value: object) -> float | int | None:
    """Rounds a number to four significant digits; returns `None` for any value that is no number.

    Example:
        >>> [number(value) for value in (0.123456, True, "1", None)]
        [0.1235, None, None, None]
    """
    return round_significant(value, 4) if is_number(value) else None


def shortened(value: object, most_characters: int = MOST_CHARACTERS) -> str:
    """Returns a text; where it is long, its middle is replaced by the number of characters left out. The end stays,
    because rewards judge the end of an answer.

    Args:
        value: a text, or any value, which is converted to one.
        most_characters: the length from which on a text is cut.

    Example:
        >>> shortened("abcdef", 4)
        'ab … 2 characters left out … ef'
    """
    text = value if isinstance(value, str) else str(value)
    if len(text) <= most_characters:
        return text
    tail = most_characters // 2
    head = most_characters - tail
    return f"{text[:head]} … {len(text) - most_characters:,} characters left out … {text[len(text) - tail :]}"


def conversation(turns: Sequence[Any]) -> list[list[str]]:
    """Returns a conversation as pairs of role and content.

    Args:
        turns: tables with `role` and `content`, as chat templates take them.

    Example:
        >>> conversation([{"role": "user", "content": "higher"}, 7])
        [['user', 'higher'], ['', '7']]
        >>> call = {"function": {"name": "add", "arguments": {"a": 2}}}
        >>> conversation([{"role": "assistant", "content": "", "tool_calls": [call]}])
        [['assistant', '{"name": "add", "arguments": {"a": 2}}']]
    """
    return [
        (
            [str(turn.get("role", "")), shortened(_turn_text(turn))]
            if isinstance(turn, Mapping)
            else ["", shortened(turn)]
        )
        for turn in turns
    ]


def _turn_text(turn: Mapping[str, Any]) -> object:
    """Returns a message's content, followed by the calls of tools that it made."""
    content, calls = turn.get("content", ""), turn.get("tool_calls")
    if not isinstance(calls, list):
        return content
    functions = [call.get("function", call) if isinstance(call, Mapping) else call for call in calls]
    return "\n".join([str(content), *(json.dumps(function, ensure_ascii=False) for function in functions)]).strip()


def demonstration(example: Any, root: Path, pictures: Pictures) -> dict[str, Any]:
    """Returns a chosen demonstration, its fields as texts and its pictures as numbers.

    Args:
        example: the demonstration in a member's record: a table of fields, or an identifier.
        root: the run folder, to which paths of pictures are relative.
        pictures: collects the pictures of the page.

    Example:
        >>> demonstration({"question": "2 + 2?", "answer": "4"}, Path(), Pictures(0))
        {'question': '2 + 2?', 'answer': '4'}
    """
    if not isinstance(example, Mapping):
        return {"id": shortened(example, 600)}
    example_data = {}
    for name, value in example.items():
        picture = isinstance(value, str) and value.lower().endswith(SUFFIXES)
        example_data[str(name)] = pictures.add(root, value) if picture else shortened(value, 600)
    return example_data


def _answered(record: Mapping[str, Any]) -> dict[str, str]:
    """Returns the task model's answer after the last demonstration, and the answers that count as right."""
    measurements = record.get("measured")
    predictions = (
        [
            measurement["prediction"]
            for measurement in measurements
            if isinstance(measurement, Mapping) and "prediction" in measurement
        ]
        if isinstance(measurements, list)
        else []
    )
    right_answers = record.get("answers")
    answer_data = {"o": shortened(predictions[-1], 600)} if predictions else {}
    return answer_data | (
        {"w": shortened(", ".join(dict.fromkeys(map(str, right_answers))), 600)}
        if isinstance(right_answers, list) and right_answers
        else {}
    )


def _tokens(record: Mapping[str, Any]) -> dict[str, Any]:
    tokens = record.get("tokens")
    if not isinstance(tokens, list) or not tokens:
        return {}
    cut = len(tokens) - MOST_TOKENS
    head, tail = MOST_TOKENS - MOST_TOKENS // 2, len(tokens) - MOST_TOKENS // 2

    def ends(values: list[Any]) -> list[Any]:
        return values[:head] + values[tail:] if cut > 0 else values

    token_data: dict[str, Any] = {"k": [shortened(token, 200) for token in ends(tokens)]}
    if cut > 0:
        token_data |= {"more": cut, "head": head}
    for page_key, name in _NUMBERS.items():
        if isinstance(values := record.get(name), list) and len(values) == len(tokens):
            token_data[page_key] = [round_significant(value, 3) if is_number(value) else None for value in ends(values)]
    return token_data
