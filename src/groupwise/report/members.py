"""A member of a group as the page holds it: short names, nothing twice, nothing endless."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.report.pictures import SUFFIXES, Pictures
from groupwise.report.thin import tidy
from groupwise.runs import is_number

MOST_CHARACTERS = 6000
"""Of one text; what is cut off is counted."""
MOST_TOKENS = 1500

_SHOWN_APART = frozenset(
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


def member(record: Mapping[str, Any], parts: Sequence[str], root: Path, pictures: Pictures) -> dict[str, Any]:
    """One record of `rollouts/`, for the page. Every value may be of any type: it is data that somebody's code wrote.

    Args:
        record: of a member.
        parts: names of the rewards, in the page's order.
        root: the run folder, to which a picture's place is relative.
        pictures: where pictures are collected.

    Returns:
        `r` reward, `a` advantage, `p` the parts, `t` text, `k` tokens with `lp`, `lr`, `cr` (log-prob when sampled,
        log-ratio, credit), `m` turns, `d` demonstrations with `o` the answer they led to and `w` those that count as
        right, `i` pictures, `e` everything else, `n` decisions, `l` mean log-ratio, `x` true where a limit cut it off;
        each only where there is something.

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
    found: dict[str, Any] = {
        "r": number(record.get("reward")),
        "a": number(record.get("advantage")),
        "p": [number(rewards.get(name)) if isinstance(rewards, Mapping) else None for name in parts],
    }
    count = record.get("num_decisions", record.get("num_tokens"))
    if is_number(count):
        found["n"] = number(count)
    if record.get("truncated") is True:
        found["x"] = True
    if number(record.get("log_ratio")):
        found["l"] = number(record.get("log_ratio"))
    if record.get("text") is not None:
        found["t"] = shortened(record["text"])
    found |= _tokens(record)
    if isinstance(turns := record.get("messages"), list):
        found["m"] = conversation(turns)
    if isinstance(shown := record.get("demonstrations"), list):
        found["d"] = [demonstration(each, root, pictures) for each in shown]
        found |= _answered(record)
    images, rest = {}, {}
    for name, value in record.items():
        if name in _SHOWN_APART:
            continue
        if isinstance(value, str) and value.lower().endswith(SUFFIXES):
            images[name] = pictures.add(root, value)
        elif value not in (None, "", [], {}):
            rest[name] = shortened(value, 600)
    if isinstance(logged := record.get("logged"), Mapping):
        rest |= {str(name): shortened(value, 600) for name, value in logged.items() if value is not None}
    if images:
        found["i"] = images
    if rest:
        found["e"] = rest
    return found


def number(value: object) -> float | int | None:
    """A number of four significant digits, or `None`.

    Args:
        value: any.

    Example:
        >>> [number(value) for value in (0.123456, True, "1", None)]
        [0.1235, None, None, None]
    """
    return tidy(value, 4) if is_number(value) else None


def shortened(value: object, most: int = MOST_CHARACTERS) -> str:
    """A text, its end replaced by the number of characters left out where it is long.

    Args:
        value: a text, or anything that has one.
        most: characters.

    Example:
        >>> shortened("abcdef", 4)
        'abcd … and 2 more characters'
    """
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= most else f"{text[:most]} … and {len(text) - most:,} more characters"


def conversation(turns: Sequence[Any]) -> list[list[str]]:
    """Pairs of role and content.

    Args:
        turns: as chat templates take them.

    Example:
        >>> conversation([{"role": "user", "content": "higher"}, 7])
        [['user', 'higher'], ['', '7']]
    """
    return [
        (
            [str(turn.get("role", "")), shortened(turn.get("content", ""))]
            if isinstance(turn, Mapping)
            else ["", shortened(turn)]
        )
        for turn in turns
    ]


def demonstration(shown: Any, root: Path, pictures: Pictures) -> dict[str, Any]:
    """A chosen demonstration: its fields as texts, its picture as a number.

    Args:
        shown: as a record names it.
        root: the run folder.
        pictures: where pictures are collected.

    Example:
        >>> demonstration({"question": "2 + 2?", "answer": "4"}, Path(), Pictures(0))
        {'question': '2 + 2?', 'answer': '4'}
    """
    if not isinstance(shown, Mapping):
        return {"id": shortened(shown, 600)}
    found = {}
    for name, value in shown.items():
        picture = isinstance(value, str) and value.lower().endswith(SUFFIXES)
        found[str(name)] = pictures.add(root, value) if picture else shortened(value, 600)
    return found


def _answered(record: Mapping[str, Any]) -> dict[str, str]:
    """What the task model answered after the last demonstration, and the answers that count as right."""
    measured = record.get("measured")
    last = (
        [each["prediction"] for each in measured if isinstance(each, Mapping) and "prediction" in each]
        if isinstance(measured, list)
        else []
    )
    right = record.get("answers")
    found = {"o": shortened(last[-1], 600)} if last else {}
    return found | (
        {"w": shortened(", ".join(dict.fromkeys(map(str, right))), 600)} if isinstance(right, list) and right else {}
    )


def _tokens(record: Mapping[str, Any]) -> dict[str, Any]:
    tokens = record.get("tokens")
    if not isinstance(tokens, list) or not tokens:
        return {}
    found: dict[str, Any] = {"k": [shortened(token, 200) for token in tokens[:MOST_TOKENS]]}
    if len(tokens) > MOST_TOKENS:
        found["more"] = len(tokens) - MOST_TOKENS
    for short, name in _NUMBERS.items():
        if isinstance(values := record.get(name), list) and len(values) == len(tokens):
            found[short] = [tidy(value, 3) if is_number(value) else None for value in values[:MOST_TOKENS]]
    return found
