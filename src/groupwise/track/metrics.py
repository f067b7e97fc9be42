"""`metrics.jsonl`: one JSON object a step, appended and flushed at once, so that a killed run keeps every line it printed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path


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
        >>> list(read_metrics(file.path))
        [{'step': 1, 'reward': 0.5}]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    @property
    def length(self) -> int:
        """Bytes in the file: what a checkpoint remembers."""
        return self.path.stat().st_size

    def append(self, row: Mapping[str, float | int | str | None]) -> None:
        """Writes one row; a number that is not finite becomes `null`, since JSON has no name for it.

        Raises:
            OSError: the disk is full; the rows before stay whole.
        """
        plain = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()}
        before = self.length
        try:
            with self.path.open("a") as file:
                file.write(json.dumps(plain, allow_nan=False) + "\n")
        except OSError:
            self.cut_back(before)
            raise

    def cut_back(self, length: int) -> None:
        """Drops everything after `length` bytes: the rows a resumed run will write again."""
        with self.path.open("r+b") as file:
            file.truncate(length)


def read_metrics(path: Path) -> Iterator[dict[str, float | int | str | None]]:
    """Rows in order; a last line that a crash cut in half is left out."""
    with path.open() as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def depends_on_machine(name: str) -> bool:
    """Whether a metric is a time or an amount of memory: all that may differ when a run is repeated.

    Example:
        >>> [depends_on_machine(name) for name in ("seconds/update", "step_time", "memory/peak_mib", "rewards/judge/seconds", "reward")]
        [True, True, True, True, False]
    """
    return name.startswith(("seconds/", "memory/")) or name == "step_time" or name.endswith("/seconds")
