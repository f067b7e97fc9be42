"""Things that two runs of one seed have in common: only these cancel in the difference of the runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.runs import Run, read_lines, read_run

DATA, START, SAMPLES = "evaluation prompts", "weights at the start", "first samples"
"""Things that two runs may have in common: the evaluation prompts; the scores on them before the first policy step,
hence the weights; and the members of the first step that samples, where both drew the same random numbers.
"""

_SAME = ("key", "mode", "sample", "prompt", "text", "rewards")


def shared(first_folder: Path, second_folder: Path) -> tuple[str, ...]:
    """Returns the things that two runs have in common according to their folders.

    Returns:
        those of `evaluation prompts`, `weights at the start` and `first samples` that are equal in both runs; things
        that a folder does not record are left out.

    Example:
        >>> shared(Path("nowhere"), Path("nowhere"))
        ()
    """
    if not (first_folder.is_dir() and second_folder.is_dir()):
        return ()
    runs = read_run(first_folder), read_run(second_folder)
    evaluations = [_records(run, run.evaluations.get(_first_sampled(run) - 1)) for run in runs]
    common = []
    if all(evaluations) and [record.get("key") for record in evaluations[0]] == [
        record.get("key") for record in evaluations[1]
    ]:
        common.append(DATA)
        if evaluations[0] == evaluations[1]:
            common.append(START)
    members = [_records(run, run.rollouts.get(_first_sampled(run))) for run in runs]
    if all(members) and _common(*members):
        common.append(SAMPLES)
    return tuple(common)


def _first_sampled(run: Run) -> int:
    """Returns the first step that sampled members, whose rollouts are written at any interval."""
    return next(iter(run.rollouts), 0)


def _records(run: Run, path: Path | None) -> list[Mapping[str, Any]]:
    """Returns the comparable records of a file of members, none where there is no file."""
    return [] if path is None else [_comparable(run, record) for record in read_lines(path).rows]


def _comparable(run: Run, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the comparable entries of a member's record. A picture is replaced by the hash of its content, since two
    different images may have equal rewards.
    """
    pictures = {name: value for name, value in record.items() if isinstance(value, str) and value.endswith(".png")}
    picture_hashes = {name: _content(run.path / value) for name, value in pictures.items()}
    return {name: record[name] for name in _SAME if name in record and name not in picture_hashes} | picture_hashes


def _content(path: Path) -> str:
    """Returns the hash of a file's bytes, empty where there is no file."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _common(first_members: list[Mapping[str, Any]], second_members: list[Mapping[str, Any]]) -> bool:
    """Returns whether the members of common prompts are equal. Groups may differ in size, and one of the runs may have
    drawn further groups.
    """
    sides = []
    for members in (first_members, second_members):
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for member in members:
            groups.setdefault(str(member.get("prompt", member.get("key"))), []).append(member)
        sides.append(groups)
    common_prompts = sides[0].keys() & sides[1].keys()
    return bool(common_prompts) and all(
        first_member == second_member
        for key in common_prompts
        for first_member, second_member in zip(sides[0][key], sides[1][key], strict=False)
    )
