"""A run that prints nothing for long says what it does, from the reading of the model on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.training.toy import ToyDomain, job, recipe

from groupwise.track import Silence, TrackConfig
from groupwise.training.run import launch


def test_each_silent_part_is_told_once_before_what_it_ends_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds, made, begun = [0.0], list[Silence](), list[Silence]()

    def silence(*arguments: Any) -> Silence:
        made.append(Silence(*arguments, clock=lambda: seconds[0]))
        return made[-1]

    def pass_by() -> None:
        seconds[0] += 12
        made[-1].look()
        made[-1].look()

    class Slow(ToyDomain):
        def evaluate(self, **keywords: Any) -> Any:
            pass_by()
            return super().evaluate(**keywords)

        def reward(self, samples: Any) -> Any:
            pass_by()
            return super().reward(samples)

    def build(device: Any) -> ToyDomain:
        pass_by()
        return Slow()

    monkeypatch.setattr(launch, "Silence", silence)
    monkeypatch.setattr(Silence, "begin", lambda self: begun.append(self))  # the test looks, and no thread
    launch.train(job(recipe(num_steps=1), domain=build, track=TrackConfig(console="lines")), tmp_path / "run")
    said = [line.split(" (")[0].split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    parts = ["reading the model and the data", "evaluating", "step 0/1", "waiting for the rewards", "evaluating"]
    assert [line for line in said if line in {*parts, "step 1/1"}] == [*parts, "step 1/1"]
    quiet = TrackConfig(console="none")
    launch.train(job(recipe(num_steps=1), domain=build, track=quiet), tmp_path / "quiet")
    assert len(made) == 2
    assert begun == made[:1]
