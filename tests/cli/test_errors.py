"""What is told in one message, and what keeps its traceback."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from groupwise.cli.output import message_for_user, report
from groupwise.config import ConfigError, read_toml
from groupwise.objective import Objective
from groupwise.training.distributed import World


def caught(call) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_what_a_room_raises_on_purpose_is_for_the_user():
    assert message_for_user(caught(lambda: read_toml("nowhere.toml"))) == "no such file: nowhere.toml"
    assert "did you mean dapo" in (message_for_user(caught(lambda: Objective.preset("dappo"))) or "")


def test_an_exception_of_a_library_is_reported_as_a_defect():
    from groupwise.domain.language.source.cups import follow

    assert message_for_user(caught(lambda: int("x"))) is None
    # Raised inside one of our lines, not by one of our `raise`s.
    assert message_for_user(caught(lambda: follow(1, [(1,)]))) is None
    assert message_for_user(ConfigError("raised by nobody")) is None


@pytest.mark.parametrize(("rank", "own", "broken"), [("0", [], [10.0]), ("1", [5.0], [10.0])])
def test_who_waits_before_it_tells(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rank: str,
    own: list[float],
    broken: list[float],
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("groupwise.cli.output.time.sleep", waited.append)
    monkeypatch.setenv("RANK", rank)
    assert report(caught(lambda: read_toml("nowhere.toml"))) == 2
    assert waited == own
    waited.clear()

    # Nobody listens there: what a connection that breaks later raises comes from the same place.
    # No group is begun: one that fails still takes a name, and torch keeps meshes by the names of their groups.
    def connect() -> Any:
        return next(dist.rendezvous("tcp://127.0.0.1:1", 1, 2, timeout=timedelta(milliseconds=1)))

    assert report(caught(connect)) == 1
    assert waited == broken
    assert (
        "the connection to another process broke; where that one ended, what it said says why: Dist"
        in capsys.readouterr().err
    )
    waited.clear()

    def store_ends() -> None:
        raise dist.DistNetworkError("Broken pipe")  # from C++, without a frame of its own

    assert report(caught(store_ends)) == 1
    assert waited == broken
    assert "the connection to another process broke" in capsys.readouterr().err
    waited.clear()
    # Where another process said that it left, its sentence stands in the place of the connection's.
    meeting = SimpleNamespace(left=lambda: "process 2 has left the run: no more", leave=lambda reason: None)

    def breaks() -> None:
        with World(meeting=meeting).telling_end():  # type: ignore[arg-type]
            connect()

    assert report(caught(breaks)) == 1
    assert waited == broken
    assert "process 2 has left the run: no more" in capsys.readouterr().err
