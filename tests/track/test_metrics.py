"""`metrics.jsonl` holds whole rows and nothing else, whatever happens."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from groupwise.track import MetricsFile, Trackers, read_metrics


def test_rows_are_strict_json(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "m.jsonl")
    file.append({"step": 1, "kl": float("inf"), "reward": 0.1})
    assert json.loads((tmp_path / "m.jsonl").read_text(), parse_constant=lambda _: 1 / 0) == {
        "step": 1,
        "kl": None,
        "reward": 0.1,
    }


@pytest.mark.slow
def test_a_full_disk_leaves_whole_rows(tmp_path: Path) -> None:
    code = (
        "import pathlib, resource, signal, sys\n"
        "from groupwise.track import MetricsFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "file = MetricsFile(pathlib.Path(sys.argv[1]))\n"
        "file.append({'step': 1})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))\n"
        "try:\n"
        "    file.append({'step': 2, 'long': 'x' * 100})\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.jsonl")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "File too large\n"
    assert (tmp_path / "m.jsonl").read_text() == '{"step": 1}\n'


def test_a_broken_line_is_skipped_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "m.jsonl").write_bytes(b'{"step": 1}\n\x00\x00\xff{"st\n7\n{"step": 3}\n')
    assert list(read_metrics(tmp_path / "m.jsonl")) == [{"step": 1}, {"step": 3}]
    assert [record.message.split(": ", 1)[1] for record in caplog.records] == [
        f"line {line} is no row of metrics and is skipped" for line in (2, 3)
    ]


def test_cutting_back_never_extends_a_file(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"step": 1}\n{"step": 2')
    file = MetricsFile(tmp_path / "m.jsonl")
    file.sync()
    assert file.cut_back(100) == 78
    file.append({"step": 3})
    assert (tmp_path / "m.jsonl").read_text() == '{"step": 1}\n{"step": 3}\n'
    assert file.cut_back(12) == 0
    assert (tmp_path / "m.jsonl").read_text() == '{"step": 1}\n'


# A tracker that fails is dropped and said; the others go on.


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
