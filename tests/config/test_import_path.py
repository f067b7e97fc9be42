"""One type for every key that names code: it is found wherever it stands, and no other key reaches an import."""

from __future__ import annotations

import ast
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from groupwise.config import (
    Config,
    ConfigError,
    ImportPath,
    InModule,
    OpenKinds,
    attribute_docs,
    import_paths,
    validate,
)
from groupwise.experiment.schema import Experiment

SOURCE = Path(__file__).resolve().parents[2] / "src"

KEYS = {
    "CallableDegradation.path",
    "DifferentiableLoss.path",
    "ChatTools.tools",
    "OptimiserFromPath.path",
    "SyncFromPath.path",
    "ModelObjects.model",
    "Pretrained.pipeline",
    "ModelObjects.tokenizer",
    "Rows.held_out_path",
    "Rows.path",
    "CallableDomain.path",
    "CallableAdmission.path",
    "CallableAdvantage.path",
    "CallableAggregation.path",
    "CallableCorrection.path",
    "CallableCredit.path",
    "CallableDivergence.path",
    "CallableRatio.path",
    "CallableSmoothing.path",
    "CallableTrust.path",
    "CallableFixed.path",
    "CallableMatching.path",
    "CallableReference.path",
    "CallableReward.path",
    "CallableSchedule.path",
    "Classifier.function",
    "WinRate.function",
    "TrainConfig.callbacks",
    "DataConfig.map",
    "DemonstrationsConfig.writer",
    "CallableEnvironment.path",
    "CallableNetwork.path",
    "Tools.tools",
}
"""Every key of an experiment whose value is imported."""

IMPORTERS = {
    "groupwise/config/import_path.py": "what a configuration names, through its one door",
    "groupwise/plugins.py": "what installed packages bring, by the names of their entry points",
    "groupwise_images/reward/lpips.py": "a part of torchvision by its own name",
    "groupwise/training/distributed.py": "a part of torch by its own name",
    "groupwise/integrations/foreign.py": "a part of verl or SkyRL by its own name",
    "groupwise/reward/programs/isolated_test/tester.py": "returns of a program that is examined, behind the wall",
    "groupwise/reward/programs/isolated_test/plain_data.py": "modules of types that the file itself lists",
    "groupwise/__init__.py": "rooms of the package",
    "groupwise/reward/__init__.py": "rooms of the package",
    "groupwise/experiment/__init__.py": "rooms of the package",
    "groupwise/objective/__init__.py": "rooms of the package",
    "groupwise/training/__init__.py": "rooms of the package",
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


def models(annotation: Any, seen: set[type]) -> Iterator[type[BaseModel]]:
    """Every model that may stand below an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation not in seen:
            seen.add(annotation)
            yield annotation
            for field in annotation.model_fields.values():
                yield from models(field.annotation, seen)
                for kinds in (mark for mark in field.metadata if isinstance(mark, OpenKinds)):
                    for kind in kinds.names():
                        yield from models(kinds.config(kind), seen)
        return
    for part in get_args(getattr(annotation, "__value__", annotation)):
        yield from models(part, seen)
        if isinstance(part, OpenKinds):
            for kind in part.names():
                yield from models(part.config(kind), seen)


def parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(getattr(annotation, "__value__", annotation)):
        yield from parts(part)


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


def test_the_keys_of_an_experiment_that_name_code_are_listed() -> None:
    code_keys = {
        f"{model.__name__}.{name}"
        for model in models(Experiment, set())
        for name, field in model.model_fields.items()
        if any(part is ImportPath for part in parts(field.annotation))
    }
    assert code_keys == KEYS


@pytest.mark.slow
def test_a_key_that_is_described_as_code_has_the_type() -> None:
    plain = []
    for model in models(Experiment, set()):
        about, docs = model.__doc__ or "", attribute_docs(model)
        for name in model.model_fields:
            lines = [line for line in about.splitlines() if line.strip().startswith(f"{name}:")]
            description = " ".join([docs.get(name, ""), *lines])
            if (
                "package.module" in description or "import path" in description
            ) and f"{model.__name__}.{name}" not in KEYS:
                plain.append(f"{model.__name__}.{name}")
    assert not plain


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


def test_whoever_imports_says_so_in_its_types() -> None:
    from groupwise.config import require_open, user_callable, user_class, user_module, user_object

    functions = (require_open, user_module, user_object, user_callable, user_class)
    assert all(typing.get_type_hints(function)["path"] is ImportPath for function in functions)
