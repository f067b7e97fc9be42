"""The console says step, reward and held-out score, as lines where there is no terminal."""

from __future__ import annotations

import io

from rich.console import Console

from groupwise.track.console import ConsoleTracker


def test_lines_away_from_a_terminal() -> None:
    out = io.StringIO()
    tracker = ConsoleTracker(4, "accuracy", console=Console(file=out, width=200))
    tracker.metrics(0, {"eval/accuracy": 0.25})
    tracker.metrics(1, {"reward": 0.5, "step_time": 1.25})
    tracker.note("all groups were flat [bold]")
    tracker.close()
    assert out.getvalue().splitlines() == [
        "step 0/4  held-out accuracy 0.250",
        "step 1/4  reward 0.500  held-out accuracy 0.250  1.25 s",
        "all groups were flat [bold]",
    ]


def test_a_long_run_prints_about_fifty_lines_and_every_evaluation() -> None:
    out = io.StringIO()
    tracker = ConsoleTracker(1000, "accuracy", console=Console(file=out, width=200))
    for step in range(1, 1001):
        tracker.metrics(step, {"reward": 0.0} | ({"eval/accuracy": 0.5} if step == 7 else {}))
    lines = out.getvalue().splitlines()
    assert len(lines) == 51
    assert lines[0].startswith("step 7/1000")


def test_a_terminal_gets_a_bar() -> None:
    out = io.StringIO()
    tracker = ConsoleTracker(10, None, console=Console(file=out, width=120, force_terminal=True))
    tracker.metrics(5, {"reward": 0.5})
    tracker.close()
    assert "5/10" in out.getvalue()
    assert "reward 0.500" in out.getvalue()
