"""The records of a run that stay: its newest ones, and older ones evenly over the run, so that the folder of a run of
any length has a bounded size.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Literal

_NAME = re.compile(r"(step|evaluation)-(\d+)(?:\.jsonl)?")


def retained_steps(steps: Collection[int], newest: int) -> set[int]:
    """Returns the steps whose records stay: the newest ones, and before them the first of every span of `2^k` steps,
    where `k` is the smallest for which at most `newest` spans fit into the run.

    A later call removes every step that an earlier call removed, and needs only the steps that the earlier call kept.
    The result is therefore the same however often the function is called, and whether or not the run was killed in
    between.

    Args:
        steps: the steps that have records.
        newest: number of the newest steps that stay.

    Returns:
        at most `2 * newest` steps, always with the first and the last one.

    Example:
        >>> sorted(retained_steps(range(10, 1001, 10), newest=4))
        [10, 260, 520, 770, 970, 980, 990, 1000]
    """
    ordered = sorted(steps)
    if len(ordered) <= newest:
        return set(ordered)
    span = 1
    while ordered[-1] // span >= newest:
        span *= 2
    first_of_span: dict[int, int] = {}
    for step in ordered:
        first_of_span.setdefault(step // span, step)
    return {*first_of_span.values(), *ordered[-newest:]}


def remove_old_records(
    folder: Path, kind: Literal["step", "evaluation"], newest: int, always: Collection[int] = ()
) -> int:
    """Removes the records of the steps that `retained_steps` leaves out, with their pictures.

    Args:
        folder: `RUN/rollouts`.
        kind: the kind of records, rollouts of steps or evaluations.
        newest: number of the newest steps whose records stay.
        always: further steps whose records stay.

    Returns:
        the number of steps whose records were removed.
    """
    paths_by_step: dict[int, list[Path]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        if (name := _NAME.fullmatch(path.name)) and name[1] == kind:
            paths_by_step.setdefault(int(name[2]), []).append(path)
    removed = paths_by_step.keys() - retained_steps(paths_by_step, newest) - set(always)
    for step in removed:
        # The records go first, so that no record names a missing picture. Nothing is renamed before it is removed: the
        # next call removes the files that a kill leaves.
        for path in sorted(paths_by_step[step], key=Path.is_dir):
            _remove(path)
    return len(removed)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        # A file that cannot be removed does not end the run.
        with suppress(OSError):
            path.unlink()
