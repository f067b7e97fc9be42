"""A stranger's code is loaded, checked and called in one way, wherever a configuration names it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import ConfigError, ImportPath, restrict_code, validate
from groupwise.config.from_path import call_user, user_callable, user_class, user_object
from groupwise.domain.callable import CallableDomain
from groupwise.domain.language.config import DataConfig
from groupwise.domain.language.data import split
from groupwise.domain.language.environment import CallableEnvironment, Tools
from groupwise.domain.language.source import Cups, Rows
from groupwise.objective.trust import CallableTrust
from groupwise.reference import CallableReference
from groupwise.reward import CallableReward, WinRate
from groupwise.schedule import CallableSchedule
from groupwise.training.run.loop import load_callbacks
from groupwise_images.restoration.network import CallableNetwork
from groupwise_images.reward.classifier import Classifier

PLACES: dict[str, tuple[str, Callable[[ImportPath], Any]]] = {
    "slot": ("path", lambda path: validate(CallableTrust, {"path": path})),
    "schedule": ("path", lambda path: validate(CallableSchedule, {"path": path})),
    "reference": ("path", lambda path: validate(CallableReference, {"path": path})),
    "domain": ("path", lambda path: validate(CallableDomain, {"path": path})),
    "reward": ("path", lambda path: CallableReward(path=path).open()),
    "judge of pairs": ("function", lambda path: WinRate(function=path).open()),
    "classifier": ("function", lambda path: Classifier(function=path).open()),
    "environment": ("domain.environment.path", lambda path: CallableEnvironment(path=path).open()),
    "tool": ("domain.environment.tools.sum", lambda path: Tools(tools={"sum": path}).open()),
    "network": ("network.path", lambda path: CallableNetwork(path=path).build()),
    "callback": ("train.callbacks", lambda path: load_callbacks([path])),
    "rows": ("data.source.path", lambda path: Rows(path=path).rows(1, 0)),
    "row map": ("data.map", lambda path: split(DataConfig(source=Cups(), num_train=1, num_held_out=1, map=path))),
}
"""What an error calls the key, and what loads it."""

MODULE = '''
class Piece:
    """Extends nothing."""

    def __init__(self, size, start=0):
        self.size = size / start if start else size

def shout(text):
    return text.upper()

constant = 3
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "code_of_mine.py"
    file.write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "code_of_mine", raising=False)
    return file


def refused(attempt: Callable[[], Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        attempt()
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("place", PLACES)
def test_every_place_says_the_same_of_a_path_that_leads_nowhere(place: str, module: Path) -> None:
    key, load_path = PLACES[place]
    nowhere, absent = ImportPath("nowhere_at_all:Piece"), ImportPath("code_of_mine:Peice")
    assert refused(lambda: load_path(nowhere)) == (
        f"{key} = 'nowhere_at_all:Piece': the module 'nowhere_at_all' cannot be imported: ModuleNotFoundError: No"
        " module named 'nowhere_at_all'; it must be installed or lie in the working directory"
    )
    message = refused(lambda: load_path(absent))
    assert message.startswith(f"{key} = 'code_of_mine:Peice': 'code_of_mine' has no ")
    assert message.endswith("; did you mean Piece?")
    module.write_text("import sys\nsys.exit('ended\\nhere')\n")
    sys.modules.pop("code_of_mine")
    broken = refused(lambda: load_path(ImportPath("code_of_mine:Piece")))
    assert "cannot be imported: SystemExit: ended here (at " in broken
    assert "code_of_mine.py:2 in <module>)" in broken


@pytest.mark.parametrize("place", sorted(set(PLACES) - {"slot", "schedule", "reference", "domain"}))
def test_code_that_was_not_asked_for_is_refused_as_that(place: str, module: Path) -> None:
    module.write_text("raise AssertionError('it ran')")
    with restrict_code():
        message = refused(lambda: PLACES[place][1](ImportPath("code_of_mine:Piece")))
    assert message == "code_of_mine:Piece is code that was not asked for, and is not run"


def test_a_member_of_a_class_is_a_path_too(module: Path) -> None:
    assert user_object(ImportPath("fractions:Fraction.from_float"))(0.5) == 0.5
    assert "has no 'Piece.size'" in refused(lambda: user_object(ImportPath("code_of_mine:Piece.size")))


def test_an_object_of_the_wrong_sort_is_refused(module: Path) -> None:
    assert "it is of type int and cannot be called; name a function" in refused(
        lambda: user_callable(ImportPath("code_of_mine:constant"))
    )
    assert "it is of type function and no class; name a class" in refused(
        lambda: user_class(ImportPath("code_of_mine:shout"))
    )
    assert "Piece does not extend pathlib.Path; write class Piece(pathlib.Path)" in refused(
        lambda: user_class(ImportPath("code_of_mine:Piece"), Path)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "here: it does not take arguments = {}: missing a required argument: 'size'"),
        ({"sise": 1}, "here: it does not take arguments = {'sise': 1}: missing a required argument: 'size'"),
        ({"size": "2", "start": 1}, "here: Piece(size='2', start=1) failed: TypeError: unsupported operand"),
    ],
)
def test_a_call_that_fails_says_where(arguments: dict[str, Any], message: str, module: Path) -> None:
    piece_class = user_class(ImportPath("code_of_mine:Piece"))
    message_of_call = refused(lambda: call_user(piece_class, arguments, "here"))
    assert message_of_call.startswith(message)
    assert call_user(piece_class, {"size": 3}, "here").size == 3
