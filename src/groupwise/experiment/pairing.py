"""What two runs of one seed really share: only what is the same on both sides cancels in their difference."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.runs import Run, read_lines, read_run

DATA, START, SAMPLES = "evaluation prompts", "weights at the start", "first samples"
"""What may be shared: the same prompts; the same scores on them before the first policy step, hence the same weights;
and, drawn with the same noise, the same members in the first step that samples.
"""

_SAME = ("key", "mode", "sample", "prompt", "text", "rewards")


def shared(first: Path, second: Path) -> tuple[str, ...]:
    """What two runs share, as their folders show it.

    Args:
        first, second: run folders.

    Returns:
        of `evaluation prompts`, `weights at the start`, `first samples`, those that are the same; what a folder does
        not record is left out.

    Example:
        >>> shared(Path("nowhere"), Path("nowhere"))
        ()
    """
    if not (first.is_dir() and second.is_dir()):
        return ()
    runs = read_run(first), read_run(second)
    before = [_records(run, run.evaluations.get(_first_sampled(run) - 1)) for run in runs]
    found = []
    if all(before) and [each.get("key") for each in before[0]] == [each.get("key") for each in before[1]]:
        found.append(DATA)
        if before[0] == before[1]:
            found.append(START)
    members = [_records(run, run.rollouts.get(_first_sampled(run))) for run in runs]
    if all(members) and _common(*members):
        found.append(SAMPLES)
    return tuple(found)


def _first_sampled(run: Run) -> int:
    """The first step with members: rollouts are written for it, whatever their interval."""
    return next(iter(run.rollouts), 0)


def _records(run: Run, path: Path | None) -> list[Mapping[str, Any]]:
    return [] if path is None else [_told(run, record) for record in read_lines(path).rows]


def _told(run: Run, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a record says of a member, its pictures by their content: two images of one reward are not the
    same image.
    """
    pictures = {name: value for name, value in record.items() if isinstance(value, str) and value.endswith(".png")}
    shown = {name: _content(run.path / value) for name, value in pictures.items()}
    return {name: record[name] for name in _SAME if name in record and name not in shown} | shown


def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _common(first: list[Mapping[str, Any]], second: list[Mapping[str, Any]]) -> bool:
    """Whether the members that both have are the same: groups may be of different sizes, and one side may have drawn
    further groups.
    """
    sides = []
    for members in (first, second):
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for member in members:
            groups.setdefault(str(member.get("prompt", member.get("key"))), []).append(member)
        sides.append(groups)
    both = sides[0].keys() & sides[1].keys()
    return bool(both) and all(
        one == other for key in both for one, other in zip(sides[0][key], sides[1][key], strict=False)
    )
