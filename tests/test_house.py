"""The house itself: pins, set-up, layers of import, size and shape of files."""

from __future__ import annotations

import ast
import functools
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from tests.mutations import MUTATIONS, Mutation, mutated

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
CORE = SOURCE / "groupwise"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FILES = sorted(SOURCE.rglob("*.py"))


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(parsed(path)))


PARTS = {"pydantic_core"}
"""Part of another dependency."""
IMPORTED_AS = {"scikit_learn": "sklearn", "scikit_image": "skimage", "pillow": "PIL"}
"""Libraries whose modules have another name."""

MODALITIES = ("language", "diffusion", "restoration", "selection", "report")
EVERYTHING = [line for name in MODALITIES for line in PROJECT["project"]["optional-dependencies"][name]]


def pins() -> dict[str, Version]:
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    return {name.lower().replace("_", "-"): Version(version) for name, version in (line.split("==") for line in lines)}


def requirements() -> list[Requirement]:
    project = PROJECT["project"]
    given = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    return [requirement for requirement in map(Requirement, given) if requirement.name != "groupwise"]


@pytest.mark.parametrize("requirement", requirements(), ids=lambda requirement: requirement.name)
def test_every_dependency_is_pinned_to_a_version_it_allows(requirement: Requirement) -> None:
    pin = pins()[requirement.name.lower()]
    assert requirement.specifier.contains(pin)
    assert pin.local is None, "a local tag would rule out the builds of other machines"


def test_what_is_imported_is_what_is_declared() -> None:
    optional = PROJECT["project"]["optional-dependencies"]
    declared, extras = (
        {IMPORTED_AS.get(name := Requirement(line).name.replace("-", "_"), name) for line in lines}
        for lines in (
            [*PROJECT["project"]["dependencies"], *EVERYTHING],
            [line for name in ("dspy", "langchain", "ocr", "ray", "tinker", "track", "trl") for line in optional[name]],
        )
    )
    imported = set()
    for path in FILES:
        for node in nodes(path):
            absolute = isinstance(node, ast.ImportFrom) and not node.level
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if absolute
                else []
            )
            imported |= {name.partition(".")[0] for name in names}
    outside = {
        name for name in imported if name not in sys.stdlib_module_names and not name.startswith("groupwise")
    } - PARTS
    assert outside - extras == declared


@pytest.mark.parametrize("line", sorted({*PROJECT["project"]["dependencies"], *EVERYTHING}))
def test_what_is_allowed_is_what_the_oldest_environment_has(line: str) -> None:
    requirement = Requirement(line)
    (lowest,) = (each.version for each in requirement.specifier if each.operator == ">=")
    oldest = {
        each.name: each
        for each in map(Requirement, (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8").split("\n")[1:-1])
    }
    assert requirement.name in oldest, (
        f"write {requirement.name}=={lowest}.* into constraints-oldest.txt, and run `make oldest`"
    )
    assert str(oldest[requirement.name].specifier) in (
        f"=={lowest}.*",
        f"=={lowest}",
    ), "the oldest environment has the lowest version"


def test_one_version_everywhere() -> None:
    version = PROJECT["project"]["version"]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert (
        re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE).group(1) == version
    )


@pytest.mark.parametrize(
    ("target", "stamps", "installs"),
    [
        ("train", [".installed"], 1),
        ("smollm", [".installed", ".installed-smollm"], 3),
        ("test", [".installed", ".installed-dev"], 3),
    ],
)
def test_make_installs_once(tmp_path: Path, target: str, stamps: list[str], installs: int) -> None:
    environment = tmp_path / "environment"

    def plan() -> str:
        return subprocess.run(
            ["make", "-n", target, f"VENV={environment}"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    first = plan()
    assert first.count("-m venv") == 1
    assert first.count("pip install") == installs
    (environment / "bin").mkdir(parents=True)
    for name in ("bin/python", *stamps):
        (environment / name).touch()
    second = plan()
    assert "pip install" not in second
    assert "-m venv" not in second
    assert str(environment / "bin") in second, "the second time it still does what it is for"


def test_a_file_says_in_its_docstring_which_concept_it_is() -> None:
    silent = [str(path.relative_to(SOURCE)) for path in FILES if not ast.get_docstring(parsed(path))]
    assert silent == []


def test_the_installed_entry_points_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    for group, points in project.items():
        present = {point.name: point.value for point in entry_points(group=group)}
        assert {name: present.get(name) for name in points} == points, (
            f"{group} of pyproject.toml is not what is installed; run `rm .venv/.installed*; make .venv/.installed-dev`"
        )


NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> dict[str, int]:
    """Counts the code lines of each function, by its name and line: those with a token that is neither a comment nor a
    docstring.
    """
    nodes = list(ast.walk(ast.parse(text)))
    documented = {
        line
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for child in node.body
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant) and isinstance(child.value.value, str)
        for line in range(child.lineno, (child.end_lineno or child.lineno) + 1)
    }
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    } - documented
    return {
        f"{node.name}:{node.lineno}": len(code.intersection(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def has_long_function(path: Path) -> bool:
    functions = (node for node in nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return any((node.end_lineno or node.lineno) - node.lineno >= 60 for node in functions)


def test_no_function_is_above_60_code_lines() -> None:
    long = [
        f"{path.relative_to(SOURCE)} {name}: {lines}"
        for path in FILES
        # Counting takes ten times as long as finding that every function is short.
        if has_long_function(path)
        for name, lines in code_lines(path.read_text(encoding="utf-8")).items()
        if lines > 60
    ]
    assert long == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_finds_its_line_and_its_tests(mutation: Mutation) -> None:
    assert mutated(mutation)
    assert (ROOT / "tests" / mutation.test).exists()


def test_nothing_is_pickled() -> None:
    pickling = re.compile(
        r"^\s*(import|from)"
        r" (pickle|cloudpickle|dill|marshal|shelve)\b|torch\.save\(|torch\.load\((?!.*weights_only=True)",
        re.MULTILINE,
    )
    assert [str(path.relative_to(SOURCE)) for path in FILES if pickling.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("room", ["training", "experiment", "cli"])
def test_weights_have_one_owner(room: str) -> None:
    """Who trains, evaluates or reports talks to `domain.learner`: no file reaches for a module or its parameters."""
    reached = [
        f"{path.relative_to(SOURCE)}:{node.lineno} .{node.attr}"
        for path in sorted((CORE / room).rglob("*.py"))
        # `estimate` reads the shape of a model's configuration, and no weight.
        if path != CORE / "cli" / "estimate.py"
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and node.attr in ("module", "parameters", "named_parameters", "state_dict", "load_state_dict", "zero_grad")
        and "signature(" not in ast.unparse(node)
        and ast.unparse(node) != "path.module"  # of an import path
    ]
    assert reached == []


def test_the_map_of_the_readme_names_every_room() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tree = readme.partition("## The map\n")[2].partition("## ")[0]
    rooms = {path.name for path in (*CORE.iterdir(), *SOURCE.iterdir()) if path.is_dir() and path.name != "__pycache__"}
    named = set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE))
    assert named == rooms - {"groupwise"}
    (line,) = re.findall(r"^    one file a slot: (.*)$", tree, re.MULTILINE)
    (layers,) = (each["layers"] for each in PROJECT["tool"]["importlinter"]["contracts"] if "slots" in each["name"])
    assert sorted(line.split()) == sorted(next(layer for layer in layers if "trust" in layer).split(" | "))
    for name in re.findall(r"^ +(\w+\.py) ", tree, re.MULTILINE):
        assert list(SOURCE.rglob(name)), name


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_what_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    pattern = r"`((?:src|tests|docs|benchmarks|examples|learner|objective|domain|config)/[\w./*-]+)`"
    for path in set(re.findall(pattern, text)):
        if not re.search(r"NAME|SLOT", path):
            assert [*ROOT.glob(path), *CORE.glob(path)], path
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`make (\w+)", text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
