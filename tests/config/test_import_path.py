"""One type for every key that names code: it is found wherever it stands, and no other key reaches an import."""

import ast
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from groupwise.config import (
    CalledFromPath,
    Config,
    ConfigError,
    ImportPath,
    InModule,
    import_paths,
    may_run,
    raised_at,
    restrict_code,
    user_module,
    validate,
)
from groupwise.config.from_path import call_user, user_callable, user_class, user_object
from groupwise.domain.callable import CallableDomain
from groupwise.domain.language.config import DataConfig
from groupwise.domain.language.data import split
from groupwise.domain.language.environment import CallableEnvironment, Tools
from groupwise.domain.language.source import Cups, Rows
from groupwise.objective import Objective
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot
from groupwise.objective.trust import CallableTrust
from groupwise.reference import CallableReference
from groupwise.reward import CallableReward, WinRate
from groupwise.schedule import CallableSchedule
from groupwise.training.run.loop import load_callbacks
from groupwise_images.restoration.network import CallableNetwork
from groupwise_images.reward.classifier import Classifier

SOURCE = Path(__file__).resolve().parents[2] / "src"


IMPORTERS = {
    "groupwise/config/import_path.py": "what a configuration names, through its one door",
    "groupwise/plugins.py": "what installed packages bring, by the names of their entry points",
    "groupwise_images/reward/lpips.py": "a part of torchvision by its own name",
    "groupwise/training/distributed.py": "a part of torch by its own name",
    "groupwise_trainers/foreign.py": "a part of verl or SkyRL by its own name",
    "groupwise/reward/programs/isolated_test/tester.py": "returns of a program that is examined, behind the wall",
    "groupwise/reward/programs/isolated_test/plain_data.py": "modules of types that the file itself lists",
    "groupwise/__init__.py": "rooms of the package",
    "groupwise/reward/__init__.py": "rooms of the package",
    "groupwise/experiment/__init__.py": "rooms of the package",
    "groupwise/objective/__init__.py": "rooms of the package",
}
"""Files that import by name. Another one is a door through which a configuration may run code: give it an `ImportPath`,
and `user_module`.
"""


class Inner(Config):
    path: ImportPath


class Outer(Config):
    kind: str = "outer"
    one: Inner | None = None
    many: tuple[Inner, ...] = ()
    named: Mapping[str, Inner | str] = {}
    text: str = ""


def test_import_paths_are_collected_from_every_depth_of_a_table() -> None:
    tree = {
        "one": {"path": "a:b"},
        "many": [{"path": "c:d"}, {"path": "e.f:g.h"}],
        "named": {"x": "p:q", "y": {"path": "i:j"}},
        "text": "k:l",
    }
    places = [(place.key, place.path, place.holder) for place in import_paths(validate(Outer, tree), "outer")]
    assert [key for key, _, _ in places] == [
        "outer.one.path",
        "outer.many[0].path",
        "outer.many[1].path",
        "outer.named.y.path",
    ]
    assert places[2][1].module == "e.f"
    assert places[2][2] == Inner(path=ImportPath("e.f:g.h"))


@pytest.mark.parametrize(
    "text",
    ["", "a b:c", "a:", ":b", "a:b:c", "os:system('x')", "../a:b", "a.b/c", "a:b\n", "x" * 300, "a..b:c", "a:b.1"],
)
def test_a_text_that_is_no_import_path_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is no import path; write package\.module:name"):
        validate(Inner, {"path": text})


def test_an_import_path_is_saved_as_text_and_read_back() -> None:
    inner = Inner(path=ImportPath("a:b"))
    assert inner.model_dump_json() == '{"path":"a:b"}'
    assert type(inner.model_dump(mode="json")["path"]) is str
    assert Inner.model_validate_json(inner.model_dump_json()) == inner
    assert inner.path == "a:b"


def test_where_no_entry_points_are_served_a_module_is_named() -> None:
    class Strict(Config):
        path: InModule

    assert validate(Inner, {"path": "an_entry.point-1"}).path.name == ""
    with pytest.raises(ConfigError, match="is no import path"):
        validate(Strict, {"path": "an_entry"})
    (place,) = import_paths(validate(Strict, {"path": "a:b"}))
    assert place.path == "a:b"


BY_NAME = {
    "import_module",
    "__import__",
    "entry_points",
    "run_module",
    "run_path",
    "exec_module",
    "load_module",
    "pickle_load",
}


def test_nothing_else_of_the_package_imports_by_name() -> None:
    importing_files = set()
    for file in SOURCE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if not any(name in text for name in BY_NAME):
            continue  # parsing all of the package takes seconds
        for node in ast.walk(ast.parse(text)):
            called = node.func if isinstance(node, ast.Call) else None
            name = (
                called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
            )
            if name in BY_NAME:
                importing_files.add(file.relative_to(SOURCE).as_posix())
    assert importing_files == set(IMPORTERS)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # As a console command has it: the working directory is not on the path.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    for name in ("lying_here", "lying_here_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_module_in_the_working_directory_is_found_after_installed_ones(here: Path):
    (here / "lying_here.py").write_text("value = 3")
    (here / "math.py").write_text("sqrt = None")
    assert user_module(ImportPath("lying_here:name")).value == 3
    assert sys.path[-1] == str(here)
    assert callable(user_module(ImportPath("math:name")).sqrt)


def test_an_import_that_fails_inside_a_module_keeps_its_own_error(here: Path):
    (here / "lying_here_broken.py").write_text("import not_installed_anywhere")
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        user_module(ImportPath("lying_here_broken:name"))
    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        user_module(ImportPath("nowhere_at_all:name"))


def test_where_a_users_function_raised_is_said_from_the_working_directory(here: Path):
    (here / "raises_for_a_user.py").write_text("def broken():\n    raise KeyError('x')\n")
    with pytest.raises(KeyError) as caught:
        user_module(ImportPath("raises_for_a_user:name")).broken()
    assert raised_at(caught.value) == " (at raises_for_a_user.py:2 in broken)"


def test_within_the_block_nothing_else_is_imported(here: Path):
    (here / "lying_here.py").write_text("raise AssertionError('it ran')")
    with restrict_code([ImportPath("math:sqrt")]):
        assert user_module(ImportPath("math:sqrt")).sqrt(4) == 2
        with restrict_code(), pytest.raises(ConfigError, match="math:sqrt is code that was not asked for"):
            user_module(ImportPath("math:sqrt"))
        assert may_run(ImportPath("math:sqrt"))
        # Another function of the same module is other code.
        with pytest.raises(ConfigError, match="was not asked for"):
            user_module(ImportPath("math:cbrt"))
        with pytest.raises(ConfigError, match="was not asked for"):
            user_module(ImportPath("lying_here:f"))
    assert may_run(ImportPath("lying_here:f"))


def test_plain_text_is_no_code():
    with pytest.raises(TypeError, match="give the key that names code the type ImportPath"):
        user_module("math:sqrt")  # type: ignore[arg-type]


# A class at a path: its settings are stated whole, validated once, and told from everything that has another place.


HERE = "tests.config.test_import_path"


class Line(TrustSlot):
    """`S = slope rho A`, below a ceiling where there is one."""

    scope: ClassVar[str] = "decision"
    slope: float = 2.0
    ceiling: float | None = 5.0

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        return Surrogate(self.slope * log_ratio.exp() * decisions.advantage, torch.ones_like(decisions.mask))


class Holder(Config):
    trust: CallableTrust


class Maker(Config):
    made: CalledFromPath


def configured(**settings: Any) -> CallableTrust:
    return validate(Holder, {"trust": {"path": f"{HERE}:Line", "settings": settings}}).trust


def test_a_configuration_states_every_setting() -> None:
    trust = configured(ceiling=None)
    assert trust.settings == {"slope": 2.0, "ceiling": None}
    assert trust == configured(slope=2.0, ceiling=None) != configured()
    objective = Objective.preset("bnpo", **{"trust.kind": "callable", "trust.path": f"{HERE}:Line"})
    assert json.loads(objective.model_dump_json())["trust"]["settings"] == {"slope": 2.0, "ceiling": 5.0}
    assert Objective.model_validate_json(objective.model_dump_json()) == objective


def test_a_copy_is_configured_by_its_own_settings() -> None:
    trust = configured(slope=3.0)
    assert trust.piece.slope == 3.0
    assert trust.model_copy(update={"settings": {"slope": 4.0}}).piece.slope == 4.0
    assert trust.model_copy().piece == trust.piece
    assert trust == configured(slope=3.0), "what was asked before changes no comparison"


def test_what_was_made_computes_nothing_where_its_code_may_not_run() -> None:
    trust = configured()
    assert isinstance(trust.piece, Line)
    with restrict_code(), pytest.raises(AssertionError, match="only read"):
        trust(torch.zeros(1, 1), None)
    with restrict_code():
        assert configured(slpe=1).settings == {"slpe": 1}


def test_several_wrong_settings_are_told_each_under_its_key() -> None:
    with pytest.raises(ConfigError) as caught:
        configured(slpe=1.0, ceiling="high")
    assert sorted(map(str, caught.value.problems)) == [
        'trust.settings.ceiling = "high": must be a valid number',
        "trust.settings.slpe = 1.0: unknown key; allowed: slope, ceiling; did you mean slope?",
    ]


@pytest.mark.parametrize("allowed", [True, False])
def test_a_setting_beside_the_path_is_told_its_place_whether_its_code_may_run_or_not(allowed: bool) -> None:
    path = f"{HERE}:Line"
    with nullcontext() if allowed else restrict_code(), pytest.raises(ConfigError) as raised:
        validate(Holder, {"trust": {"path": path, "slope": 0.1}})
    told = f"the settings of {path} stand in trust.settings; write trust.settings.slope"
    assert str(raised.value) == f"trust.slope = 0.1: unknown key; {told}"


def test_an_argument_beside_the_path_is_told_its_place() -> None:
    with pytest.raises(
        ConfigError, match=r"depth = 2: unknown key; the arguments of a:B .* write made.arguments.depth$"
    ):
        validate(Maker, {"made": {"path": "a:B", "depth": 2}})


# A stranger's code is loaded, checked and called in one way, wherever a configuration names it.


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
