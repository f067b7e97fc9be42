"""Knights and Knaves worked out: every way the people could be, and whether what they say agrees with it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

# Share of demonstrations that think before they answer.
_WORKED_SHARE = 0.4


def write(row: Mapping[str, Any], seed: int) -> str:
    """`<think>...</think> <answer>...</answer>` with the right answer; the thoughts of most are empty.

    A worked text goes through the assignments in order, truth first, and writes for each what every statement is worth:
    `Zoey knight, Riley knave: true, true no.` An assignment holds where exactly the knights' statements are true.
    """
    metadata = row["metadata"]
    worked = random.Random(f"demonstration {seed} {row['prompt']}").random() < _WORKED_SHARE
    thoughts = work(metadata["names"], metadata["statements"], (metadata["knight_knave_terms"]["knight"], metadata["knight_knave_terms"]["knave"]))
    return f"<think>{thoughts if worked else ''}</think> <answer>{row['answer']}</answer>"


def work(names: Sequence[str], statements: Sequence[Any], terms: tuple[str, str]) -> str:
    """The search in words, up to the assignment that holds.

    Example:
        >>> work(["Al", "Bo"], [["lying", 1], ["telling-truth", 0]], ("knight", "knave"))
        'Al knight, Bo knight: false, true no. Al knight, Bo knave: true, true no. Al knave, Bo knight: false, false no. Al knave, Bo knave: true, false no.'
    """
    lines = []
    for honest in itertools.product((True, False), repeat=len(names)):
        said = [holds(statement, honest) for statement in statements]
        who = ", ".join(f"{name} {terms[0] if truthful else terms[1]}" for name, truthful in zip(names, honest, strict=True))
        fits = tuple(said) == honest
        lines.append(f"{who}: {', '.join('true' if each else 'false' for each in said)} {'yes' if fits else 'no'}.")
        if fits:
            break
    return " ".join(lines)


def holds(statement: Any, honest: Sequence[bool]) -> bool:
    """Whether a statement of reasoning-gym's puzzles is true when `honest[i]` says that person i tells the truth.

    Example:
        >>> holds(["->", ["telling-truth", 0], ["lying", 1]], [True, True])
        False
    """
    kind, *parts = statement
    if kind in ("telling-truth", "lying"):
        return honest[parts[0]] == (kind == "telling-truth")
    values = [holds(part, honest) for part in parts]
    if kind == "not":
        return not values[0]
    if kind in ("and", "or"):
        return all(values) if kind == "and" else any(values)
    if kind == "->":
        return not values[0] or values[1]
    if kind == "<=>":
        return values[0] == values[1]
    raise ValueError(f"{kind!r} is no kind of statement; known are telling-truth, lying, not, and, or, ->, <=>")
