from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from groupwise.domain.language.tools import ToolRunner


@pytest.fixture
def release():
    event = threading.Event()
    yield event
    event.set()


def test_results_of_any_kind_become_texts():
    runner = ToolRunner(seconds=10.0, max_characters=12)

    async def search():
        await asyncio.sleep(0)
        return ["ä"]

    assert runner.call("text", lambda: "as it is") == ("as it is", True)
    assert runner.call("none", lambda: None) == ("null", True)
    assert runner.call("search", search) == ('["ä"]', True)
    assert runner.call("object", lambda: {1, 2}) == ('"{1, 2}"', True)
    assert runner.call("long", lambda: "x" * 100) == ("x" * 12, True)
    assert runner.call("half", lambda: "a\ud800") == ("a?", True)


def test_what_a_tool_raises_is_one_line():
    runner = ToolRunner(seconds=10.0, max_characters=100)

    class Unspeakable(Exception):
        def __str__(self):
            raise RuntimeError

    def fail(error):
        raise error

    assert runner.call("fail", lambda: fail(ValueError("two\nlines"))) == ("error: ValueError: two lines", False)
    assert runner.call("fail", lambda: fail(Unspeakable())) == ("error: Unspeakable", False)
    assert runner.call("fail", lambda: sys.exit(3)) == ("error: SystemExit: 3", False)


def test_a_tool_that_hangs_is_left_and_called_no_more_once_too_many_calls_hang(release):
    runner = ToolRunner(seconds=0.01, max_characters=100)
    for _ in range(16):
        assert runner.call("wait", release.wait) == ("error: wait took longer than 0.01 seconds", False)
    assert runner.call("wait", release.wait) == ("error: wait is busy with 16 earlier calls that have not ended", False)
    runner.seconds = 10.0
    assert runner.call("clock", lambda: "12:00") == ("12:00", True), "one tool that hangs keeps no other from its work"
    release.set()
    for thread in [thread for thread in threading.enumerate() if thread.name == "reward-tool-wait"]:
        thread.join(10.0)
    assert runner.call("wait", release.wait) == ("true", True)
