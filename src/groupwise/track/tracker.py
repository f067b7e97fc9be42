"""The interface of everything that follows a run; a tracker that fails is reported once and dropped,
and training goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

log = logging.getLogger("groupwise")


class Tracker(Protocol):
    """Receives what a run says about itself."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Writes the numbers of one step, by metric name."""
        ...

    def members(self, step: int, place: str, records: Sequence[Mapping[str, Any]], pictures: Mapping[str, Any]) -> None:
        """Writes members of a step for people to read: `place` is `rollouts` or `evaluation`; images in
        records and `pictures` are `uint8`, `[H, W]` or `[H, W, 3]`.
        """
        ...

    def note(self, text: str) -> None:
        """Writes a sentence for people: an event, a warning."""
        ...

    def alarm(self, rule: str) -> None:
        """Shows the rule that names the cause of what is wrong now; an empty text means that nothing is wrong."""
        ...

    def close(self) -> None:
        """Closes the tracker at the end of the run."""
        ...


class Trackers:
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

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Hands the numbers of one step to every tracker."""
        self._call_all("metrics", step, values)

    def members(self, step: int, place: str, records: Sequence[Mapping[str, Any]], pictures: Mapping[str, Any]) -> None:
        """Hands members and pictures to every tracker."""
        self._call_all("members", step, place, records, pictures)

    def note(self, text: str) -> None:
        """Hands a sentence to every tracker."""
        self._call_all("note", text)

    def alarm(self, rule: str) -> None:
        """Hands the cause of what is wrong to every tracker."""
        self._call_all("alarm", rule)

    def close(self) -> None:
        """Closes every tracker."""
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
