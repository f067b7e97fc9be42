"""Domains come in by their entry points: no room above names one of ours; an installation that has none says so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.domain.callable import config_class

SOURCE = Path(__file__).resolve().parents[2] / "src" / "groupwise"
SHIPPED = {"language", "diffusion", "restoration", "selection"}
FILES = [path for room in ("experiment", "training", "cli", "reward") for path in sorted((SOURCE / room).rglob("*.py"))]
EXPERIMENT = {("cli/estimate.py", "language")}
"""The name of the experiment that is estimated where a command names none."""


def concrete(text: str) -> Iterator[str]:
    """The places of a source text that import a shipped domain or hold its kind as a string, docstrings left out."""
    tree = ast.parse(text)
    bodies = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    prose = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, bodies)
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        modules = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [f"{node.module}.{alias.name}" for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else [node.value]
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
            else []
        )
        for module in modules:
            if (
                module in SHIPPED
                or any(f"domain.{kind}" in module for kind in SHIPPED)
                or module.startswith("groupwise_")
            ):
                yield module


def test_no_room_above_names_a_domain() -> None:
    names = {
        (path.relative_to(SOURCE).as_posix(), name)
        for path in FILES
        for name in concrete(path.read_text(encoding="utf-8"))
    }
    assert names == EXPERIMENT


@pytest.mark.parametrize(
    "text",
    [
        "from groupwise.domain.language.config import LanguageConfig",
        "from groupwise_images import diffusion",
        "import groupwise_selection.export",
        "def f(kind):\n    return kind == 'restoration'",
        "path = 'groupwise.domain.language.source.toys:worked'",
    ],
)
def test_a_name_is_seen_however_it_is_written(text: str) -> None:
    assert list(concrete(text))


def test_the_kind_of_a_package_that_is_not_here_is_a_plain_domain() -> None:
    assert config_class("a kind of nobody").__name__ == "DomainConfig"
    assert config_class("language").sample_hint == "ask it something"
    assert config_class("restoration").sample_hint == "restore an image of the evaluation"
