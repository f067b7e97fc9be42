"""The records of a run that stay: a bounded number, with the first, the newest and an even choice of the others, also
after kills.
"""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.training.toy import ToyDomain, job, recipe, supervised

from groupwise.runs import read_run
from groupwise.track import TrackConfig
from groupwise.training.run.launch import resume, train
from groupwise.training.run.run_folder import remove_old_records, retained_steps
from groupwise_look.report.groups import scan

# Steps with records: regular ones, and those where stages begin and end.
SCHEDULES = st.builds(
    lambda num, widest, draw: list(itertools.accumulate(draw.randint(1, widest) for _ in range(num))),
    st.integers(1, 150),
    st.integers(1, 60),
    st.randoms(),
)
NEWEST = st.integers(1, 12)


def thinned(steps: list[int], newest: int, before: set[int] | None = None) -> set[int]:
    """Returns the steps that are left when records are removed after every written step."""
    left = set(before or ())
    for step in steps:
        left = retained_steps(left | {step}, newest)
    return left


@settings(deadline=None, max_examples=30)
@given(SCHEDULES, NEWEST)
def test_the_first_and_the_newest_stay_and_the_number_is_bounded(steps: list[int], newest: int) -> None:
    left = sorted(thinned(steps, newest))
    assert len(left) <= 2 * newest
    assert left[0] == steps[0]
    assert left[-newest:] == steps[-newest:]
    assert left == sorted(retained_steps(steps, newest))


@settings(deadline=None, max_examples=30)
@given(SCHEDULES, NEWEST)
def test_older_ones_lie_evenly_over_the_run(steps: list[int], newest: int) -> None:
    left = sorted(retained_steps(steps, newest))
    widest = max((after - before for before, after in itertools.pairwise(steps)), default=0)
    # A span is at most twice the run over `newest`, so two that follow each other are no further apart than two spans
    # and a gap that was there before.
    assert all(after - before <= 4 * (steps[-1] // newest + 1) + widest for before, after in itertools.pairwise(left))


@settings(deadline=None, max_examples=30)
@given(SCHEDULES, NEWEST, st.data())
def test_killed_anywhere_and_resumed_from_anywhere_leaves_the_same(
    steps: list[int], newest: int, data: st.DataObject
) -> None:
    left: set[int] = set()
    begin = 0
    for _ in range(data.draw(st.integers(0, 3))):
        end = data.draw(st.integers(begin, len(steps)))
        left = thinned(steps[begin:end], newest, left)
        # A kill in the middle of a removal leaves records that the next call removes.
        left |= set(data.draw(st.lists(st.sampled_from(steps[:end]), max_size=5))) if end else set()
        begin = data.draw(st.integers(0, end))
        left -= set(steps[begin:])
    # A run that goes on passes the place where it was killed.
    assert thinned(steps[begin:], newest, left) == thinned(steps, newest) if begin < len(steps) else True


def test_records_go_with_their_pictures_and_nothing_else_goes(tmp_path: Path) -> None:
    for step in range(1, 9):
        (tmp_path / f"step-{step}.jsonl").write_text("{}\n")
        (tmp_path / f"step-{step}" / "members").mkdir(parents=True)
        (tmp_path / f"step-{step}" / "members" / "0-image.png").write_bytes(b"png")
        (tmp_path / f"evaluation-{step}.jsonl").write_text("{}\n")
    user_files = {"step-notes.jsonl", "step-3.txt", ".step-4.jsonl.partial-0a1b2c3d", "evaluation-3"}
    for name in user_files:
        (tmp_path / name).mkdir() if name == "evaluation-3" else (tmp_path / name).write_text("mine")
    assert remove_old_records(tmp_path, "step", newest=2, always={5}) == 4
    steps = (
        {path.name for path in tmp_path.iterdir()} - user_files - {f"evaluation-{step}.jsonl" for step in range(1, 9)}
    )
    assert steps == {name for step in (1, 5, 7, 8) for name in (f"step-{step}.jsonl", f"step-{step}")}
    assert user_files <= {path.name for path in tmp_path.iterdir()}
    assert remove_old_records(tmp_path, "step", newest=2, always={5}) == 0
    assert remove_old_records(tmp_path / "nowhere", "step", newest=1) == 0


def test_the_rollouts_of_the_last_step_are_kept_where_a_run_ends_or_is_stopped(tmp_path: Path) -> None:
    class Stopped(ToyDomain):
        calls = 0

        def reward(self, samples: Any) -> Any:
            self.calls += 1
            if self.calls == 7:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().reward(samples)

    track = TrackConfig(console="none", rollouts_every=5)
    whole = train(job(recipe(num_steps=8), track=track), tmp_path / "whole")
    stopped = train(job(recipe(num_steps=8), track=track, domain=lambda device: Stopped()), tmp_path / "stopped")
    assert (whole.interrupted, stopped.interrupted) == (False, True)
    assert list(read_run(tmp_path / "whole").rollouts) == [1, 5, 8]
    assert list(read_run(tmp_path / "stopped").rollouts) == [1, 5, 7]
    assert not resume(job(recipe(num_steps=8), track=track), tmp_path / "stopped").interrupted
    assert list(read_run(tmp_path / "stopped").rollouts) == [1, 5, 8]
    never = TrackConfig(console="none", rollouts_every=0)
    train(job(recipe(num_steps=2), track=never), tmp_path / "never")
    assert list(read_run(tmp_path / "never").rollouts) == []


def test_a_run_keeps_its_beginning_its_best_and_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stages = supervised(num_steps=4, evaluate_every=1), recipe(num_steps=14, evaluate_every=1, rate=0.3)
    result = train(
        job(*stages, track=TrackConfig(console="lines", rollouts_every=1, num_rollouts=8, keep_records=3)),
        tmp_path / "run",
    )
    read = read_run(tmp_path / "run")
    assert next(iter(read.rollouts)) == 5
    assert list(read.rollouts)[-3:] == [16, 17, 18]
    assert len(read.rollouts) <= 6
    best = max(zip(*reversed(read.series("eval/accuracy")), strict=True), key=lambda pair: (pair[0], -pair[1]))[1]
    assert {0, 4, best, 16, 17, 18} <= set(read.evaluations)
    assert len(read.evaluations) <= 8
    assert result.before_step == 4
    output = " ".join(capsys.readouterr().out.split())
    assert output.count("(track.keep_records)") == 1
    # What looks back takes what is left for what there was.
    assert {group.step for group in scan(read).groups} == set(read.rollouts)
    assert scan(read).remarks == []
