"""The clock by which stages and controls are given equal time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.training.run import loop

_WORK = """
import json, time
from groupwise.training.run.loop import undelayed_seconds

starts = time.perf_counter(), time.process_time(), undelayed_seconds()
while time.process_time() - starts[1] < .4:
    pass
ends = time.perf_counter(), time.process_time(), undelayed_seconds()
print(json.dumps([end - start for start, end in zip(starts, ends)]))
"""


@pytest.mark.timing
@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="the system does not say who waited")
def test_time_that_other_programs_take_from_the_thread_is_not_counted() -> None:
    processor = {min(os.sched_getaffinity(0))}

    def pin() -> None:
        os.sched_setaffinity(0, processor)

    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=pin) for _ in range(2)]
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _WORK], preexec_fn=pin, capture_output=True, text=True, timeout=600, check=True
        )
    finally:
        for other in others:
            other.kill()
            other.wait()
    wall, processor_seconds, undelayed = json.loads(answer.stdout)
    waited = wall - processor_seconds
    assert waited > 0.2, "two programs beside it take about two thirds of the processor"
    assert undelayed - processor_seconds < 0.25 * waited


def test_time_without_a_record_of_waiting_is_wall_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loop, "_SCHEDULER", tmp_path / "absent")
    monkeypatch.setattr(loop, "perf_counter", lambda: 12.5)
    assert loop.undelayed_seconds() == 12.5
    (tmp_path / "schedstat").write_text("7000000000 2500000000 3\n", encoding="ascii")
    monkeypatch.setattr(loop, "_SCHEDULER", tmp_path / "schedstat")
    assert loop.undelayed_seconds() == 10.0
    (tmp_path / "schedstat").write_text("no record\n", encoding="ascii")
    assert loop.undelayed_seconds() == 12.5
