"""Which records of a run stay: its newest ones, and older ones evenly over the run, so that a run of any length has a
folder of bounded size.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Literal

_NAME = re.compile(r"(step|evaluation)-(\d+)(?:\.jsonl)?")


def kept(steps: Collection[int], newest: int) -> set[int]:
    """The steps whose records stay: the newest so many, and before them the first of every span of `2^k` steps, of
    which at most as many fit into the run.

    What is left out once is left out for ever after, and a later call needs no more than what an earlier one kept: so
    it makes no difference how often a run is thinned, or whether it was killed in between.

    Args:
        steps: with records, or what is left of them.
        newest: how many of the newest stay.

    Returns:
        at most `2 * newest` of them, always with the first and the last.

    Example:
        >>> sorted(kept(range(10, 1001, 10), newest=4))
        [10, 260, 520, 770, 970, 980, 990, 1000]
    """
    ordered = sorted(steps)
    if len(ordered) <= newest:
        return set(ordered)
    span = 1
    while ordered[-1] // span >= newest:
        span *= 2
    first: dict[int, int] = {}
    for step in ordered:
        first.setdefault(step // span, step)
    return {*first.values(), *ordered[-newest:]}


def thin(folder: Path, kind: Literal["step", "evaluation"], newest: int, always: Collection[int] = ()) -> int:
    """Removes the records that `kept` leaves out, with their pictures.

    Args:
        folder: `RUN/rollouts`.
        kind: which records.
        newest: how many of the newest stay.
        always: steps whose records stay besides.

    Returns:
        how many steps lost theirs.
    """
    found: dict[int, list[Path]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        if (name := _NAME.fullmatch(path.name)) and name[1] == kind:
            found.setdefault(int(name[2]), []).append(path)
    removed = found.keys() - kept(found, newest) - set(always)
    for step in removed:
        # The records first: none names a picture that is gone. Nothing is set aside under a hidden name: what a kill
        # leaves goes the next time.
        for path in sorted(found[step], key=Path.is_dir):
            _remove(path)
    return len(removed)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        # What cannot be removed is no reason to end a run.
        with suppress(OSError):
            path.unlink()
