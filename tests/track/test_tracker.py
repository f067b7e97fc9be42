"""A tracker that fails is dropped and said; the others go on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from groupwise.track import Trackers


class Recording:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.seen.append((step, dict(values)))

    def members(self, *given: object) -> None:
        self.seen.append(given)

    def alarm(self, rule: str) -> None:
        self.seen.append(f"alarm {rule}")

    def note(self, text: str) -> None:
        self.seen.append(text)

    def close(self) -> None:
        self.seen.append("closed")


class FailsOnSecond(Recording):
    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        if step == 2:
            raise ConnectionError("server gone")
        super().metrics(step, values)


def test_a_failing_tracker_is_dropped_and_named() -> None:
    good, bad = Recording(), FailsOnSecond()
    trackers = Trackers([bad, good])
    for step in (1, 2, 3):
        trackers.metrics(step, {"reward": float(step)})
    trackers.close()
    assert trackers.names == ["Recording"]
    assert bad.seen == [(1, {"reward": 1.0}), "closed"]
    assert [entry for entry in good.seen if isinstance(entry, tuple)] == [
        (step, {"reward": float(step)}) for step in (1, 2, 3)
    ]
    assert (
        sum("FailsOnSecond failed" in entry and "server gone" in entry for entry in good.seen if isinstance(entry, str))
        == 1
    )


class FailsSlowly(Recording):
    def note(self, text: str) -> None:
        super().note(text)
        time.sleep(0.05)
        raise ConnectionError("server gone")


def test_a_tracker_that_fails_under_two_threads_is_dropped_once() -> None:
    bad = FailsSlowly()
    trackers = Trackers([bad])
    with ThreadPoolExecutor(2) as both:
        list(both.map(trackers.note, ["one", "other"]))
    assert trackers.names == []
    assert len(bad.seen) == 2
    assert bad.seen[1] == "closed"
