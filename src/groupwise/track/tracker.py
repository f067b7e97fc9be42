"""The interface of everything that follows a run; a tracker that fails is reported once and dropped,
and training continues.
"""

import json
import logging
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.config.files import check_file

log = logging.getLogger("groupwise")


class Tracker:
    """Receives what a run reports about itself. Each method does nothing by default."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Writes the numbers of one step, by metric name."""

    def members(self, step: int, place: str, records: Sequence[Mapping[str, Any]], pictures: Mapping[str, Any]) -> None:
        """Writes members of a step for people to read: `place` is `rollouts` or `evaluation`; images in
        records and `pictures` are `uint8`, `[H, W]` or `[H, W, 3]`.
        """

    def note(self, text: str) -> None:
        """Writes a sentence for people: an event, a warning."""

    def alarm(self, rule: str) -> None:
        """Shows the rule that names the cause of what is wrong now; an empty text means that nothing is wrong."""

    def close(self) -> None:
        """Closes the tracker at the end of the run."""


class Trackers(Tracker):
    """Several trackers as one. The run's own record (`metrics.jsonl`) is not among them, since it must not fail
    silently.

    Example:
        >>> class Broken:
        ...     def metrics(self, step, values):
        ...         raise OSError("server gone")
        ...
        ...     def note(self, text): ...
        >>> trackers = Trackers([Broken()])
        >>> trackers.metrics(1, {"reward": 0.5})
        >>> trackers.names
        []
    """

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = list(trackers)
        # A request to end is said by a thread of its own.
        self._lock = threading.RLock()

    @property
    def names(self) -> list[str]:
        """The trackers that still work."""
        return [type(tracker).__name__ for tracker in self._trackers]

    def add(self, tracker: Tracker) -> None:
        """Lets one more tracker follow the run."""
        self._trackers.append(tracker)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._call_all("metrics", step, values)

    def members(self, step: int, place: str, records: Sequence[Mapping[str, Any]], pictures: Mapping[str, Any]) -> None:
        self._call_all("members", step, place, records, pictures)

    def note(self, text: str) -> None:
        self._call_all("note", text)

    def alarm(self, rule: str) -> None:
        self._call_all("alarm", rule)

    def close(self) -> None:
        self._call_all("close")

    def _call_all(self, method: str, *arguments: object) -> None:
        """Calls a method of every tracker. A tracker that raises is closed and dropped, and the others note why."""
        failed = []
        with self._lock:
            for tracker in list(self._trackers):
                try:
                    getattr(tracker, method)(*arguments)
                except Exception as error:  # any fault of a tracker is its own
                    self._trackers.remove(tracker)
                    with suppress(Exception):
                        tracker.close()
                    failed.append(
                        f"tracker {type(tracker).__name__} failed and is switched off; training goes on:"
                        f" {type(error).__name__}: {error}"
                    )
        for text in failed:
            log.warning(text)
            self._call_all("note", text)


# `metrics.jsonl`: one JSON object a step, appended and flushed at once, so that a killed run keeps every line it
# printed.


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
        before = 0
        try:
            with self.path.open("a") as file:
                before = file.tell()
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
        name: the name of a metric.

    Example:
        >>> [
        ...     depends_on_machine(name)
        ...     for name in ("seconds/update", "step_time", "memory/peak_mib", "rewards/judge/seconds", "reward")
        ... ]
        [True, True, True, True, False]
    """
    return name.startswith(("seconds/", "memory/")) or name == "step_time" or name.endswith("/seconds")


# Numbers that stand beside each other, written with as many decimals as distinguish them.


def same_decimals(values: Sequence[float | None]) -> list[str]:
    """Writes all values with the same decimals: three digits of the largest, or two digits of the difference between
    the largest and the smallest where those need more.

    27.80 and 27.91 dB are not "27.8 and 27.9", and 27.8026 adds nothing.

    Args:
        values: None, which becomes "-", where a number is missing.

    Example:
        >>> same_decimals([27.803, 27.905, None])
        ['27.80', '27.91', '-']
        >>> same_decimals([0.246, 1.0]), same_decimals([-0.003534, -0.003495]), same_decimals([1520.0, 10.0])
        (['0.246', '1.000'], ['-0.003534', '-0.003495'], ['1520', '10'])
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    largest, spread = max(map(abs, finite), default=0.0), max(finite, default=0.0) - min(finite, default=0.0)
    # 1 counts as just below 1, so that shares have three decimals also where one of them is whole.
    leading_exponent = math.ceil(math.log10(float(f"{largest:.2e}"))) - 1 if largest > 0 else 0
    # Values that differ by less than a millionth count as equal.
    gap_exponent = math.floor(math.log10(spread)) if spread > 1e-6 * largest else leading_exponent
    decimals = max(2 - leading_exponent, 1 - gap_exponent, 0)
    return ["-" if value is None else f"{value:.{decimals}f}" for value in values]


# The members of a step as a table of texts and numbers, and their images beside it. TensorBoard and Weights & Biases
# show the same table and the same images.

_MOST_MEMBERS = 16
_LONGEST = 2000
"""The most characters of a cell: `rollouts/` has the full text."""


def table(records: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Lays out the first records as columns and rows of text, without images.

    Args:
        records: JSON-able but for images.

    Returns:
        the columns in the order of their first appearance, and one row a record.

    Example:
        >>> table([{"prompt": "2+2", "rewards": {"correct": 1.0}}, {"prompt": "1+1", "reward": None}])
        (['prompt', 'rewards', 'reward'], [['2+2', '{"correct": 1.0}', ''], ['1+1', '', '']])
    """
    members = records[:_MOST_MEMBERS]
    columns = list(dict.fromkeys(name for record in members for name, value in record.items() if not is_image(value)))
    return columns, [[_cell(record.get(name)) for name in columns] for record in members]


def images(records: Sequence[Mapping[str, Any]]) -> dict[str, list[np.ndarray]]:
    """Collects the images of the first records by the name of their field, `[H, W, 3]` each.

    Args:
        records: some values may be images.

    Returns:
        name -> images, in the records' order.
    """
    images_by_field: dict[str, list[np.ndarray]] = {}
    for record in records[:_MOST_MEMBERS]:
        for name, value in record.items():
            if is_image(value):
                images_by_field.setdefault(name, []).append(as_rgb(value))
    return images_by_field


def is_image(value: Any) -> bool:
    """Returns whether a value of a record is an image: an array or tensor."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def as_rgb(image: Any) -> np.ndarray:
    """Converts an image to `[H, W, 3]` bytes.

    Args:
        image: `uint8`, `[H, W]` or `[H, W, 3]`.

    Example:
        >>> as_rgb(np.zeros((2, 3), dtype=np.uint8)).shape
        (2, 3, 3)
    """
    array = np.asarray(image.cpu() if hasattr(image, "cpu") else image)
    return array if array.ndim == 3 else np.repeat(array[:, :, None], 3, axis=2)


def _cell(value: Any) -> str:
    text = (
        "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    )
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."
