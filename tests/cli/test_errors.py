"""What is told in one message, and what keeps its traceback."""

from __future__ import annotations

from groupwise.cli.errors import message_for_user
from groupwise.config import ConfigError, read_toml
from groupwise.objective import Objective


def caught(call) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_what_a_room_raises_on_purpose_is_for_the_user():
    assert message_for_user(caught(lambda: read_toml("nowhere.toml"))) == "no such file: nowhere.toml"
    assert "did you mean dapo" in (message_for_user(caught(lambda: Objective.preset("dappo"))) or "")


def test_what_comes_out_of_a_library_is_a_defect():
    from groupwise.domain.language.source.cups import follow

    assert message_for_user(caught(lambda: int("x"))) is None
    # Raised inside one of our lines, not by one of our `raise`s.
    assert message_for_user(caught(lambda: follow(1, [(1,)]))) is None
    assert message_for_user(ConfigError("raised by nobody")) is None
