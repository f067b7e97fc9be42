"""Keys of other systems and their names in Groupwise: the tables of `presets/keys`, which the documentation prints,
looked up by key and value.
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, final

from groupwise.config import ConfigError, Problem, read_toml

_KEYS = files("groupwise") / "presets" / "keys"
_PART = re.compile(r"(?P<flag>--)?(?P<key>[A-Za-z_][\w.]*)(?:\s*[=:]\s*(?P<value>.+)|\s+(?P<after>.+))?")
_MOST = 3
"""The largest number of systems that an answer names, for a key that several systems have."""


@final
@dataclass(frozen=True)
class Row:
    """A key of another system with its counterpart.

    Args:
        system: the name of the other system.
        key: the key's name, without the dashes of a flag.
        flag: whether the key is an option of a command line.
        value: the value to which the row applies; None where it applies to any value.
        table: the row of the file: `set`, `ours`, `metrics`, `takes`, `note`.
    """

    system: str
    key: str
    flag: bool
    value: str | None
    table: Mapping[str, Any]

    @property
    def assigned(self) -> dict[str, Any]:
        """Our keys with the values that the row states."""
        return dict(self.table.get("set", {}))

    def written(self, value: Any = None) -> str:
        """The key in the spelling of its system, with its value where one is given."""
        name = f"{'--' if self.flag else ''}{self.key}"
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        return name if value is None else f"{name}{' ' if self.flag else '='}{text}"

    @property
    def takes(self) -> dict[str, set[str]]:
        """Keys of the row -> our keys that take their values."""
        takes = self.table.get("takes", {})
        return {key: {paths} if isinstance(paths, str) else set(paths) for key, paths in takes.items()}

    def states(self, value: Any) -> bool:
        """Returns whether the row's assignments hold for this value, or for a flag without one."""
        if self.value is None:
            return self.flag and value is None
        number = _number(value)
        return self.value.lower() == str(value).lower() or (number is not None and number == _number(self.value))

    def with_value(self, value: Any) -> dict[str, Any] | None:
        """Returns the assignments with another value in them; None where the table does not define any."""
        number, takes = _number(value), self.takes
        places = takes.pop(self.key, set())
        if not places and (own := _number(self.value)) is not None:
            places = {path for path, stated in self.assigned.items() if _number(stated) == own}
        if number is None or not places:
            return None
        others = set[str]().union(*takes.values()) - places
        return {path: number if path in places else own for path, own in self.assigned.items() if path not in others}


def counterpart(key: str, value: Any = None) -> str | None:
    """Answers a key of another system with its counterpart, in one line; returns None where no table has the key.

    Args:
        key: the key, dotted or not, with the dashes of a flag or without.
        value: the key's value, None for a key without one; of a table, every key in it is answered.

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
    if isinstance(value, Mapping):
        inner = [counterpart(f"{key}.{name}", nested) for name, nested in value.items()]
        return "; ".join(filter(None, inner)) or None
    systems: dict[str, list[Row]] = {}
    for row in _matching(key):
        systems.setdefault(row.system, []).append(row)
    answers = [_answer(system_rows, value) for system_rows in systems.values()]
    # Equal answers of two systems are given once.
    distinct = list({answer.partition("'s ")[2]: answer for answer in reversed(answers)}.values())[::-1]
    # Answers that can be copied word for word come first.
    distinct.sort(key=lambda answer: " is written " not in answer)
    return "; ".join(distinct[:_MOST]) or None


def flags(arguments: Iterable[str]) -> list[str]:
    """Answers the options of other systems among the arguments of a command line.

    Example:
        >>> flags(["--grpo", "--grpo_group", "4", "--seed", "7"])[1]
        "source 001's --grpo_group 4 is written train.group_size=4 here"
    """
    command, names = list(arguments), {row.written() for row in rows() if row.flag}
    answers = []
    for argument, following in zip(command, [*command[1:], "--"], strict=True):
        name, equals, value = argument.partition("=")
        if name in names:
            after = None if following.startswith("--") else following
            answers.append(counterpart(name, value if equals else after) or "")
    return answers


@cache
def rows() -> tuple[Row, ...]:
    """Reads every key of every table; leaves out rows that are about no key."""
    rows_of_keys = []
    for file in sorted((file for file in _KEYS.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name):
        tree = read_toml(Path(str(file)))
        system = re.sub(r" \(.*", "", tree["name"])
        for key in (key for section in tree["section"] for key in section["key"]):
            rows_of_keys += [Row(system, *key_of_row, key) for key_of_row in _parts(key["theirs"])]
    return tuple(rows_of_keys)


def _parts(text: str) -> list[tuple[str, bool, str | None]]:
    """Returns the keys of a row as (name, is a flag, value or None); an empty list where its text is a sentence."""
    key_texts = [key_text.strip() for key_text in re.sub(r"\([^)]*\)", "", text).split(",")]
    if all(key_text.startswith('"') for key_text in key_texts[1:]) and len(key_texts) > 1:
        # One key with several values, such as `kind = "a", "b"`.
        key_texts = [key_texts[0].partition("=")[0].strip()]
    keys = []
    for key_text in key_texts:
        match = _PART.fullmatch(key_text)
        if match is None or (match["after"] is not None and match["flag"] is None):
            return []
        value = match["value"] or match["after"]
        keys.append((match["key"], match["flag"] is not None, None if value is None else value.strip().strip('"')))
    return keys


def _matching(key: str) -> list[Row]:
    """Returns the rows for a key: rows of its whole name, or else of the longest suffix of its name, or else rows whose
    key ends with it. A match with the same case comes first.
    """
    flag, name = key.startswith("--"), key.lstrip("-")
    candidates = [row for row in rows() if row.flag or not flag]
    ends = [".".join(name.split(".")[start:]) for start in range(name.count(".") + 1)]
    for same in (str, str.lower):
        for end in ends:
            if matches := [row for row in candidates if same(row.key) == same(end)]:
                return matches
    # A name without dots may be the last part of a dotted key of another system.
    return [row for row in candidates if row.key.endswith(f".{name}")] if "." not in name else []


def _answer(system_rows: list[Row], value: Any) -> str:
    stated = next((row for row in system_rows if row.states(value)), None)
    row = stated or system_rows[0]
    name, head = f"{row.system}'s {row.written()}", f"{row.system}'s {row.written(value)}"
    note = f": {row.table['note']}".rstrip(".") if "note" in row.table else ""
    if metrics := row.table.get("metrics"):
        return f"{name} is no setting; it is logged as {row.key if row.key in metrics else ', '.join(metrics)}"
    if "ours" in row.table:
        return f"{name} is {row.table['ours']} here{note}"
    if not row.assigned:
        return f"{name} has no counterpart{note}"
    if (translated := row.assigned if stated else row.with_value(value)) is not None:
        return f"{head} is written {_assignments(translated)} here"
    return f"{row.system}'s {row.written(row.value)} is, for example, {_assignments(row.assigned)} here{note}"


def _number(value: Any) -> int | float | None:
    for kind in (int, float):
        with suppress(ValueError):
            return None if isinstance(value, bool) else kind(str(value))
    return None


def _assignments(keys: Mapping[str, Any]) -> str:
    return " ".join(f"{path}={_written(value)}" for path, value in keys.items())


def _written(value: Any) -> str:
    """Returns a value in the form that a command line takes."""
    if isinstance(value, list | dict):
        return f"'{_inline(value)}'"
    return value if isinstance(value, str) and re.fullmatch(r"[\w.]+", value) else json.dumps(value)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_inline(inner)}" for key, inner in value.items()) + " }"
    return "[" + ", ".join(map(_inline, value)) + "]" if isinstance(value, list) else json.dumps(value)


# Errors about unknown keys, with the counterpart of a key that another system has.


def with_counterparts(error: ConfigError, source: str) -> ConfigError:
    """Returns the error with a hint for every unknown key that another system has.

    Args:
        error: an error about the layers.
        source: the name of the layers, for an error that has none.

    Example:
        >>> error = ConfigError(Problem("train.epsilon = 0.2", "unknown key", ("num_steps",), value=0.2))
        >>> print(with_counterparts(error, "a.toml"))
        a.toml: train.epsilon = 0.2: unknown key; source 002's train.epsilon=0.2 is written trust.kind=clip trust.low=0.2 trust.high=0.2 here
    """  # noqa: E501
    return ConfigError([_answered(problem) for problem in error.problems], source=error.source or source)


def _answered(problem: Problem) -> Problem:
    key = problem.path.partition(" = ")[0]
    if problem.message != "unknown key" or (problem.suggestion or "").rpartition(".")[2] == key.rpartition(".")[2]:
        return problem
    answer = counterpart(key, problem.value)
    if answer is None:
        return problem
    # Inside a table the allowed keys are listed too, unless the answer already names what to write.
    allowed = problem.allowed if "." in key and " is written " not in answer else ()
    return Problem(problem.path, f"{problem.message}; {answer}", allowed)
