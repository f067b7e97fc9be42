"""Keys of other systems, answered with what they are called here: the tables of `presets/keys`, which the documentation
prints, looked up by key and value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, final

from groupwise.config import read_toml

_KEYS = files("groupwise") / "presets" / "keys"
_PART = re.compile(r"(?P<flag>--)?(?P<key>[A-Za-z_][\w.]*)(?:\s*[=:]\s*(?P<value>.+)|\s+(?P<after>.+))?")
_MOST = 3
"""Systems that are named for a key which several have."""


@final
@dataclass(frozen=True)
class Row:
    """A key of another system and what the table says of it.

    Args:
        system: whose.
        key: its name; without the dashes of a flag.
        flag: whether it is an option of a command line.
        value: the value that the row is about; unset where it is about any.
        alone: whether the row is about no other key.
        table: the row: `set`, `ours`, `metrics`, `takes`, `note`.
    """

    system: str
    key: str
    flag: bool
    value: str | None
    alone: bool
    table: Mapping[str, Any]

    @property
    def assigned(self) -> dict[str, Any]:
        """Our keys with the values that the row states."""
        return dict(self.table.get("set", {}))

    @property
    def written(self) -> str:
        """The key as its system writes it."""
        return f"{'--' if self.flag else ''}{self.key}"


def counterpart(key: str, value: Any = None) -> str | None:
    """What a key of another system is called here, in one line; None where no table has it.

    Args:
        key: as it was written, dotted or not, with the dashes of a flag or without.
        value: its value; None where it has none.

    Example:
        >>> counterpart("use_amic", "True")
        "source 000's use_amic=True is written ratio.kind=arithmetic here"
        >>> counterpart("train.num_generations", 16)
        "TRL's num_generations=16 is written train.group_size=16 here"
        >>> counterpart("--grpo_clip_range", "0.1")
        "source 001's --grpo_clip_range 0.1 is written trust.kind=clip trust.low=0.1 trust.high=0.1 train.updates_per_batch=2 here"
        >>> counterpart("nothing_of_this_name") is None
        True
    """  # noqa: E501
    said = [_answer(rows, value) for rows in _by_system(_matching(key)).values()]
    # Two systems that say the same thing say it once.
    told = list({each.partition("'s ")[2]: each for each in reversed(said)}.values())[::-1]
    # What can be written as it stands comes first.
    told.sort(key=lambda answer: " is written " not in answer)
    return "; ".join(told[:_MOST]) if told else None


def counterparts(key: str, value: Any) -> str | None:
    """As `counterpart`; where the value is a table, every key in it that a system has, each answered.

    Args:
        key: as it was written.
        value: its value, a table for keys that are dotted.

    Example:
        >>> counterparts("actor_rollout_ref", {"actor": {"clip_ratio_c": 4.0}})
        "verl's clip_ratio_c=4.0 is written trust.kind=dual_clip trust.bound=4.0 here"
    """
    if not isinstance(value, Mapping):
        return counterpart(key, value)
    said = [answer for name, inside in value.items() if (answer := counterparts(f"{key}.{name}", inside)) is not None]
    return "; ".join(said) or None


def flags(arguments: Iterable[str]) -> list[str]:
    """The options among a command's arguments that are another system's, each answered.

    Args:
        arguments: of a command line.

    Example:
        >>> flags(["--grpo", "--grpo_group", "4", "--seed", "7"])[1]
        "source 001's --grpo_group 4 is written train.group_size=4 here"
    """
    items, found = list(arguments), []
    for place, item in enumerate(items):
        name, equals, value = item.partition("=")
        after = items[place + 1] if place + 1 < len(items) and not items[place + 1].startswith("--") else None
        if name.startswith("--") and any(row.flag and row.written == name for row in rows()):
            found.append(counterpart(name, value if equals else after) or "")
    return found


@cache
def rows() -> tuple[Row, ...]:
    """Every key of every table; rows about anything but keys are left out."""
    found = []
    for table in sorted(
        (entry for entry in _KEYS.iterdir() if entry.name.endswith(".toml")), key=lambda entry: entry.name
    ):
        tree = read_toml(Path(str(table)))
        system = re.sub(r" \(.*", "", tree["name"])
        for key in (key for section in tree["section"] for key in section["key"]):
            parts = _parts(key["theirs"])
            found += [Row(system, *part, len(parts) == 1, key) for part in parts]
    return tuple(found)


def _parts(theirs: str) -> list[tuple[str, bool, str | None]]:
    """The keys that a row is about, with the value it shows of each; none where it is a sentence."""
    parts = [part.strip() for part in re.sub(r"\([^)]*\)", "", theirs).split(",")]
    if all(part.startswith('"') for part in parts[1:]) and len(parts) > 1:
        # One key with several values.
        parts = [parts[0].partition("=")[0].strip()]
    found = []
    for part in parts:
        match = _PART.fullmatch(part)
        if match is None or (match["after"] is not None and match["flag"] is None):
            return []
        value = match["value"] or match["after"]
        found.append((match["key"], match["flag"] is not None, None if value is None else value.strip().strip('"')))
    return found


def _matching(key: str) -> list[Row]:
    """The rows of a key: those of its whole name, or else of the longest end of it, or else those whose own end it is;
    letters as they are before others.
    """
    flag, name = key.startswith("--"), key.lstrip("-")
    candidates = [row for row in rows() if row.flag or not flag]
    ends = [".".join(name.split(".")[start:]) for start in range(name.count(".") + 1)]
    for same in (str, str.lower):
        for end in ends:
            if found := [row for row in candidates if same(row.key) == same(end)]:
                return found
    # The end of a key of theirs, where it stands alone: below a table of ours, or a misspelled one, it is our own key.
    return [row for row in candidates if row.key.endswith(f".{name}")] if "." not in name else []


def _by_system(found: Iterable[Row]) -> dict[str, list[Row]]:
    systems: dict[str, list[Row]] = {}
    for row in found:
        systems.setdefault(row.system, []).append(row)
    return systems


def _answer(own: list[Row], value: Any) -> str:
    stated = [row for row in own if _states(row, value)]
    row = stated[0] if stated else own[0]
    told = row.written if value is None else f"{row.written}{' ' if row.flag else '='}{_text(value)}"
    head, note = f"{row.system}'s {told}", f": {row.table['note']}".rstrip(".") if "note" in row.table else ""
    if "metrics" in row.table:
        logged = [row.key] if row.key in row.table["metrics"] else row.table["metrics"]
        return f"{row.system}'s {row.written} is no setting; it is logged as {', '.join(logged)}"
    if "ours" in row.table:
        return f"{row.system}'s {row.written} is {row.table['ours']} here{note}"
    if not row.assigned:
        return f"{row.system}'s {row.written} has no counterpart{note}"
    if (translated := row.assigned if stated else _translated(row, value)) is not None:
        return f"{head} is written {_assignments(translated)} here"
    values = [each.value for each in own if each.value is not None]
    if str(value).lower() in ("false", "none", "null") and [each.lower() for each in values] == ["true"]:
        return f"{head} is what holds without {_assignments(row.assigned)}; leave it out"
    if len(values) > 1:
        return (
            f"{row.system}'s {row.written} has counterparts for {', '.join(dict.fromkeys(values))}, for example"
            f" {_assignments(row.assigned)}"
        )
    example = row.written if row.value is None else f"{row.written}{' ' if row.flag else '='}{row.value}"
    return f"{row.system}'s {example} is, for example, {_assignments(row.assigned)} here{note}"


def _translated(row: Row, value: Any) -> dict[str, Any] | None:
    """The row's assignments with another value in them; None where the table does not say how."""
    number = _number(value)
    if number is None:
        return None
    takes = row.table.get("takes", {}).get(row.key)
    places = [takes] if isinstance(takes, str) else takes
    if places is None and row.value is not None and _number(row.value) is not None:
        places = [
            path
            for path, stated in row.assigned.items()
            if not isinstance(stated, bool | str | list) and stated == _number(row.value)
        ]
    if not places:
        return None
    others = {
        path for taken in row.table.get("takes", {}).values() for path in ([taken] if isinstance(taken, str) else taken)
    }
    return {
        path: number if path in places else stated
        for path, stated in row.assigned.items()
        if path in places or path not in others
    }


def _states(row: Row, value: Any) -> bool:
    """Whether the row says all of this value: it shows it, or it is about a switch, and the value is on."""
    if row.value is not None:
        return _same(row.value, value)
    switch = row.alone and not any(
        isinstance(stated, int | float) and not isinstance(stated, bool) for stated in row.assigned.values()
    )
    return (row.flag and value is None) or (switch and str(value).lower() == "true")


def _same(stated: str, value: Any) -> bool:
    first, second = _number(stated), _number(value)
    return first == second if first is not None and second is not None else stated.lower() == str(value).lower()


def _number(value: Any) -> int | float | None:
    if isinstance(value, bool) or value is None:
        return None
    for kind in (int, float):
        try:
            return kind(str(value))
        except ValueError:
            continue
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _assignments(keys: Mapping[str, Any]) -> str:
    return " ".join(f"{path}={_written(value)}" for path, value in keys.items())


def _written(value: Any) -> str:
    """A value as a command line takes it."""
    if isinstance(value, list | dict):
        return f"'{_inline(value)}'"
    return value if isinstance(value, str) and re.fullmatch(r"[\w.]+", value) else json.dumps(value)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_inline(each)}" for key, each in value.items()) + " }"
    return "[" + ", ".join(map(_inline, value)) + "]" if isinstance(value, list) else json.dumps(value)
