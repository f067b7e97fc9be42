"""The console says step, time left, reward, held-out score and the worst finding; as lines where there is no terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from groupwise.track.console import ConsoleTracker


def test_lines_away_from_a_terminal() -> None:
    out = io.StringIO()
    tracker = ConsoleTracker(4, "accuracy", console=Console(file=out, width=200))
    tracker.metrics(0, {"eval/accuracy": 0.25})
    tracker.metrics(1, {"reward": 0.5, "step_time": 1.25})
    tracker.alarm("all_flat")
    tracker.metrics(2, {"reward": 0.5})
    tracker.alarm("")
    tracker.metrics(3, {"reward": 0.5})
    tracker.note("all groups were flat [bold]")
    tracker.close()
    assert out.getvalue().splitlines() == [
        "step 0/4  held-out accuracy 0.250",
        "step 1/4  reward 0.500  held-out accuracy 0.250  1.25 s",
        "step 2/4  reward 0.500  held-out accuracy 0.250  ! all_flat",
        "step 3/4  reward 0.500  held-out accuracy 0.250",
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


@pytest.mark.parametrize("width", [120, 80, 40])
def test_a_terminal_gets_a_bar_no_wider_than_itself(width: int) -> None:
    out = io.StringIO()
    tracker = ConsoleTracker(1000, "restored/with_a_long_name", console=Console(file=out, width=width, force_terminal=True))
    tracker.alarm("learning_rate_too_high")
    tracker.metrics(500, {"reward": 0.5, "eval/restored/with_a_long_name": 0.25})
    tracker.close()
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n").split("\n")
    assert max(len(line) for line in lines) <= width
    shown = "\n".join(lines)
    assert re.search(r"500/1000 \S+ left", shown)
    assert "reward 0.500" in shown
    assert "held-out restored/with_a_long_name 0" in shown
    assert "! learning_rate_too_high" in shown


def test_a_resumed_run_shows_the_score_it_had() -> None:
    out = io.StringIO()
    tracker = ConsoleTracker(9, None, console=Console(file=out, width=200), start=4, held_out={"accuracy": 0.25})
    tracker.metrics(5, {"reward": 0.5})
    assert out.getvalue() == "step 5/9  reward 0.500  held-out accuracy 0.250\n"
