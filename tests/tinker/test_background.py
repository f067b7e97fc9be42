"""After a run or a command, however it ends, the SDK beats and calls no more: `_no_work_stays_behind` looks."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("tinker", reason="the extra `tinker` is not installed")

from tests.tinker.conftest import SECONDS, sdk_tasks
from tests.tinker.http_standin import StandIn
from tests.tinker.place import Place

from groupwise.cli.app import main
from groupwise.config import ConfigError
from groupwise.experiment.runner import open_domain, run
from groupwise_tinker import client
from groupwise_tinker.client import TinkerError


def when(condition: Callable[[], bool], act: Callable[[], None]) -> threading.Thread:
    """Acts on another thread once a condition holds."""

    def watch() -> None:
        end = time.monotonic() + SECONDS
        while not condition() and time.monotonic() < end:
            time.sleep(0.005)
        act()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_call_that_was_given_up_is_not_repeated_after_the_run(place: Place, state: StandIn) -> None:
    def die() -> None:
        state.dead = True

    thread = when(lambda: state.num_steps > 9, die)
    with pytest.raises(TinkerError, match="gave no answer within"):
        run(place.experiment(seconds=1.0), place.folder / "run")
    thread.join()


def test_a_session_that_is_never_answered_does_not_hold_the_end_up(place: Place, state: StandIn) -> None:
    state.faults["create_session"], state.num_faults = "503", 1000
    with pytest.raises(TinkerError, match="gave no answer within"):
        run(place.experiment(seconds=1.0), place.folder / "run")


@pytest.mark.slow
def test_a_full_server_and_a_refused_method_leave_nothing(
    place: Place, state: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_RETRY_SECONDS", 0.05)
    with pytest.raises(ConfigError, match="supplies"):
        run(place.experiment(method="source_003"), place.folder / "run")
    state.places = 1
    with pytest.raises(TinkerError, match="no free place"):
        run(place.experiment(seconds=5.0), place.folder / "run")
    assert not state.adapters


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["check", "evaluate", "sample"])
def test_a_command_that_only_asks_leaves_nothing(
    place: Place, state: StandIn, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(place.experiment("train.num_steps=1"), place.folder / "run")
    subject = place.folder / ("experiment.toml" if verb == "check" else "run")
    arguments = ["--prompt", "2+2="] if verb == "sample" else []
    monkeypatch.setattr(sys, "argv", ["groupwise", verb, str(subject), "--run-code", *arguments])
    threads = {thread.name for thread in threading.enumerate() if thread.name.startswith("reward")}
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert not state.adapters
    assert {thread.name for thread in threading.enumerate() if thread.name.startswith("reward")} <= threads


@pytest.mark.slow
def test_a_policy_that_nobody_holds_any_more_leaves_nothing(place: Place, state: StandIn) -> None:
    domain: Any = open_domain(place.experiment())
    assert state.adapters
    assert sdk_tasks()
    del domain
    gc.collect()
    assert not state.adapters
