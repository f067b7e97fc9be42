"""`metrics.jsonl`: one JSON object a step, appended and flushed at once, so that a killed run keeps every line it
printed.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from groupwise.config.files import check_file

log = logging.getLogger("groupwise")


class MetricsFile:
    """Appends rows to a file and can be cut back to an earlier length.

    Args:
        path: `RUN/metrics.jsonl`; created when absent.

    Example:
        >>> import tempfile
        >>> file = MetricsFile(Path(tempfile.mkdtemp()) / "metrics.jsonl")
        >>> file.append({"step": 1, "reward": 0.5})
        >>> kept = file.length
        >>> file.append({"step": 2, "reward": float("nan")})
        >>> file.cut_back(kept)
        0
        >>> list(read_metrics(file.path))
        [{'step': 1, 'reward': 0.5}]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        check_file(path)

    @property
    def length(self) -> int:
        """Bytes in the file: what a checkpoint remembers."""
        return self.path.stat().st_size

    def append(self, row: Mapping[str, float | int | str | None]) -> None:
        """Writes one row; a number that is not finite becomes `null`, since JSON has no name for it.

        Args:
            row: one step's numbers, and the name of its stage.

        Raises:
            OSError: the disk is full; the rows before stay whole.
        """
        plain = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in row.items()
        }
        before = self.length
        try:
            with self.path.open("a") as file:
                file.write(json.dumps(plain, allow_nan=False) + "\n")
        except OSError:
            self.cut_back(before)
            raise

    def sync(self) -> None:
        """Waits until every row is on the disk: what a checkpoint counts on must outlive a power cut."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())

    def cut_back(self, length: int) -> int:
        """Drops everything after `length` bytes: the rows a resumed run will write again. A shorter file is never
        extended.

        Args:
            length: bytes that stay.

        Returns:
            how many bytes are missing of `length`; of a file that is shorter, half a last row is dropped, so that the
            next one begins a line.
        """
        missing = max(0, length - self.length)
        with self.path.open("r+b") as file:
            file.truncate(length if not missing else file.read().rfind(b"\n") + 1)
        return missing


def read_metrics(path: Path) -> Iterator[dict[str, float | int | str | None]]:
    """Reads rows in order; leaves out a last line that a crash cut in half, and skips a broken line in between with a
    warning.

    Args:
        path: `RUN/metrics.jsonl`.

    Yields:
        one row a step.
    """
    check_file(path)
    with path.open(errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n"):
                return
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError("no table")
            except (ValueError, RecursionError):
                log.warning(f"{path}: line {number} is no row of metrics and is skipped")
            else:
                yield row


def depends_on_machine(name: str) -> bool:
    """Returns whether a metric is a time or an amount of memory: all that may differ when a run is repeated.

    Args:
        name: of a metric.

    Example:
        >>> [
        ...     depends_on_machine(name)
        ...     for name in ("seconds/update", "step_time", "memory/peak_mib", "rewards/judge/seconds", "reward")
        ... ]
        [True, True, True, True, False]
    """
    return name.startswith(("seconds/", "memory/")) or name == "step_time" or name.endswith("/seconds")
