"""The console says step, time left, reward, held-out score and the worst finding; as lines where there is
no terminal.
"""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from groupwise.runs import EvaluatedOn
from groupwise.track.console import ConsoleTracker
from groupwise.track.tracker import same_decimals


def test_lines_away_from_a_terminal() -> None:
    out = io.StringIO()
    tracker = ConsoleTracker(4, "accuracy", console=Console(file=out, width=200), evaluated_on=EvaluatedOn(8, 0))
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
        "step 1/4  reward 0.500  1.25 s",
        "step 2/4  reward 0.500  ! all_flat",
        "step 3/4  reward 0.500",
        "all groups were flat [bold]",
    ]


def test_a_long_run_prints_about_fifty_lines_every_evaluation_and_how_each_kind_of_step_begins() -> None:
    out = io.StringIO()
    tracker = ConsoleTracker(1000, "accuracy", console=Console(file=out, width=200), evaluated_on=EvaluatedOn(8, 0))
    for step in range(1, 1001):
        kind = "loss_sup" if step <= 490 else "reward"
        tracker.metrics(step, {kind: 0.0} | ({"eval/accuracy": 0.5} if step in (7, 333) else {}))
    steps = [int(line.split("/")[0].removeprefix("step ")) for line in out.getvalue().splitlines()]
    assert steps == sorted({*range(20, 1001, 20), *range(1, 11), *range(491, 501), 333})
    assert "step 333/1000  supervised loss 0.000  held-out accuracy 0.500" in out.getvalue()


@pytest.mark.parametrize("width", [120, 80, 40])
def test_a_terminal_gets_a_bar_no_wider_than_itself(width: int) -> None:
    out = io.StringIO()
    tracker = ConsoleTracker(
        1000,
        "restored/with_a_long_name",
        live=True,
        console=Console(file=out, width=width, force_terminal=True),
        evaluated_on=EvaluatedOn(8, 0),
    )
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
    console = Console(file=out, width=200, force_terminal=True)
    tracker = ConsoleTracker(
        9, None, live=True, console=console, start=4, latest={"accuracy": 0.25}, evaluated_on=EvaluatedOn(8, 8)
    )
    tracker.metrics(5, {"reward": 0.5})
    tracker.close()
    assert "reward 0.500  accuracy on training prompts 0.250" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())


def test_colours_that_are_forced_make_no_terminal() -> None:
    out = io.StringIO()
    tracker = ConsoleTracker(4, None, console=Console(file=out, width=200, force_terminal=True, highlight=False))
    tracker.metrics(4, {"reward": 0.5})
    tracker.close()
    assert out.getvalue() == "step 4/4  reward 0.500\n"


# Decimals of numbers that are read beside each other.


def test_noise_in_the_last_bits_is_not_told_apart() -> None:
    assert same_decimals([27.8, 27.8 + 4e-15]) == ["27.8", "27.8"]


def test_an_evaluation_shows_one_prompt_and_every_set() -> None:
    out = io.StringIO()
    tracker = ConsoleTracker(4, None, live=False, console=Console(file=out, width=200), evaluated_on=EvaluatedOn(8, 0))
    record = {"prompt": "2 + 2?\n", "text": "\x1b[31m4", "rewards": {"right": 1.0, "broken": None}}
    tracker.members(1, "rollouts", [record], {})
    tracker.members(1, "evaluation", [record, {**record, "text": "5"}], {})
    tracker.members(1, "evaluation", [{"image": 1}], {})
    tracker.metrics(
        1, {"eval/easy/greedy/reward": 0.5, "eval/easy/sampled/reward": 0.25, "eval/hard/greedy/reward": 0.125}
    )
    shown, row = out.getvalue().splitlines()
    assert shown == r"""  '2 + 2?\n' -> '\x1b[31m4'  right 1"""
    assert row == "step 1/4  held-out easy/greedy/reward 0.500  held-out hard/greedy/reward 0.125"
