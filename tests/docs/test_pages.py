"""What the pages show works: Python runs, TOML and commands are read by the real schema, generated pages
are complete.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.docs.loading import loaded_once
from tests.docs.page_commands import on_a_small_model, own_task
from tests.selection.small_selector import small_selector

from groupwise.config import ConfigError, merge, restrict_code
from groupwise.experiment import load_experiment
from groupwise.experiment.catalogue import find
from groupwise.objective import Objective
from groupwise.objective.method import MethodFile
from groupwise.objective.preset import method_names, read_method

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks" / "README.md",
]
BASE = {
    "domain": {
        "kind": "language",
        "model": {"kind": "pretrained", "path": "models/small"},
        "data": {"source": {"kind": "files", "paths": ["prompts.jsonl"]}},
        "rewards": {"correct": {"kind": "exact_answer"}},
    }
}


def test_the_front_pages_count_the_methods_and_those_that_were_published() -> None:
    names = method_names()
    published = [name for name in names if "not published" not in (read_method(name).paper.note or "")]
    assert 10 <= len(published) < len(names)
    for page in ("README.md", "docs/index.md"):
        text = (ROOT / page).read_text(encoding="utf-8").replace("*", "")
        assert f"{len(names)} methods, {len(published)} of them published" in text, page


def test_addresses_of_site_and_repository_are_those_of_the_project() -> None:
    import generate

    urls = generate.addresses()
    citation = dict(re.findall(r'^(url|repository-code): "?([^"\n]*)"?$', (ROOT / "CITATION.cff").read_text(), re.M))
    assert citation == {
        key: urls[name] for key, name in (("url", "Documentation"), ("repository-code", "Repository")) if name in urls
    }
    assert [address for address in urls.values() if address not in (ROOT / "README.md").read_text()] == []
    assert "site_url" not in (ROOT / "mkdocs.yml").read_text()
    assert "repo_url" not in (ROOT / "mkdocs.yml").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere_in_the_checkout(page: Path) -> None:
    """A code host shows these pages without those that are generated from the code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (page.parent / link).exists()] == []


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def files(page: Path) -> dict[str, str]:
    """The blocks of a page that are files, by name."""
    return dict(
        re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    )


def commands() -> list[str]:
    lines = [
        line.partition(" #")[0].strip()
        for page in PAGES
        for block in blocks(page, "bash")
        for line in block.splitlines()
    ]
    return sorted({line for line in lines if line})


def paths() -> list[str]:
    return sorted(
        {
            path
            for page in PAGES
            for path in re.findall(r"`((?:src|tests|benchmarks|docs)/[\w/.]+)`", page.read_text(encoding="utf-8"))
        }
    )


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=named)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in files(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        monkeypatch.setitem(sys.modules, Path(name).stem, None)
        del sys.modules[Path(name).stem]
    monkeypatch.syspath_prepend(str(tmp_path))
    if "ticket-selector" in page.read_text(encoding="utf-8"):
        small_selector().save(tmp_path / "ticket-selector")
    # What a page writes stays out of the repository.
    monkeypatch.chdir(tmp_path)
    own_task(tmp_path)
    namespace: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(on_a_small_model(block), str(page), "exec"), namespace)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")], ids=named)
def test_toml_is_an_experiment(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "toml"):
        tree = tomllib.loads(block)
        domain = tree.get("domain", {})
        if set(tree) <= set(MethodFile.model_fields) and "objective" in tree:
            (tmp_path / "method.toml").write_text(block, encoding="utf-8")
            Objective.preset(str(tmp_path / "method.toml"))
            continue
        if "extends" in tree:
            (tmp_path / "experiment.toml").write_text(block, encoding="utf-8")
            load_experiment(tmp_path / "experiment.toml")
            continue
        if domain.get("kind") == "callable":
            # A module that the page writes; tests/domain/callable runs it.
            (tmp_path / "experiment.toml").write_text(block, encoding="utf-8")
            with restrict_code():
                load_experiment(tmp_path / "experiment.toml", run_code=True)
            continue
        if domain.get("kind", "language") != "language" and "rewards" not in domain:
            # A part of the domain's own experiment.
            load_experiment(domain["kind"], tree)
            continue
        # TOML has no null and writes the text.
        (tmp_path / "experiment.json").write_text(json.dumps(merge(BASE, tree)).replace('"null"', "null"))
        load_experiment(tmp_path / "experiment.json", run_code=True)


def wrong_commands(check: Callable[[str], None]) -> dict[str, str]:
    """The commands of the pages that a check refuses, with its error."""
    wrong = {}
    for command in commands():
        if "groupwise " in command and not command.startswith(("pip", "cd")):
            try:
                check(command)
            except Exception as error:
                wrong[command] = repr(error)
    return wrong


def test_every_command_of_the_pages_exists() -> None:
    assert wrong_commands(check_options) == {}


@pytest.mark.slow
def test_the_changes_of_every_command_of_the_pages_are_read() -> None:
    assert wrong_commands(check_changes) == {}


@pytest.mark.parametrize(
    ("check", "command"),
    [
        ("check_options", "groupwise trian language"),
        ("check_options", "groupwise --versoin"),
        ("check_options", "groupwise train language --uot runs/a"),
        ("check_options", "groupwise train langage"),
        ("check_changes", "groupwise train language train.group_szie=4"),
    ],
)
def test_a_wrong_command_is_noticed(check: str, command: str) -> None:
    with pytest.raises((AssertionError, ConfigError)):
        globals()[check](command)


@cache
def command_group() -> Any:
    from typer.main import get_command

    from groupwise.cli.app import app

    return get_command(app)


def check_options(command: str) -> None:
    """Fails where a command is none of ours, or has an option or a shipped experiment that there is not."""
    verb, *arguments = shlex.split(command[command.index("groupwise ") :])[1:]
    group = command_group()
    known = group.commands
    if verb.startswith("--"):
        assert verb in {option for parameter in group.params for option in parameter.opts}
        return
    assert verb in known
    options = {option for parameter in known[verb].params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {argument for argument in arguments if argument.startswith("--")} <= options
    if name := shipped_name(verb, arguments):
        find(name)


def check_changes(command: str) -> None:
    """Fails where a command changes what cannot be changed. Shipped experiments as they are have tests of their own."""
    verb, *arguments = shlex.split(command[command.index("groupwise ") :])[1:]
    # LoRA belongs to a model folder, which `--model` names on the same line.
    of_a_folder = re.compile(r"domain\.model\.(lora|pipeline)")
    changes = [
        argument
        for argument in arguments[1:]
        if re.match(r"[a-z_.]+=[^,]*$", argument) and not of_a_folder.match(argument)
    ]
    # A method's file that the page writes; the page's own test runs it.
    changes = [argument for argument in changes if not re.match(r"method=\w+\.toml", argument)]
    if changes and (name := shipped_name(verb, arguments)):
        loaded_once(name, tuple(changes))


def shipped_name(verb: str, arguments: Sequence[str]) -> str | None:
    """The shipped experiment that a command names; `None` where it names a file or a run."""
    if verb in ("train", "check", "compare") and not arguments[0].startswith("runs/"):
        return None if arguments[0].endswith(".toml") or arguments[0].startswith("--") else arguments[0]
    return None


def test_every_target_of_the_pages_exists() -> None:
    targets = {line.split("make ")[1].split()[0] for line in commands() if line.startswith("make ") or " make " in line}
    assert targets
    assert targets <= set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_every_path_of_the_pages_exists() -> None:
    assert paths()
    assert [path for path in paths() if not (ROOT / re.sub(r"/(?:NAME|SLOT)\b.*", "", path)).exists()] == []


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    """The pages that are made, by their paths."""
    import generate

    return dict(generate.pages())


@pytest.mark.slow
def test_every_method_has_a_page_and_every_table_its_keys(generated: dict[str, str]) -> None:
    found = generated
    for name in method_names():
        page = found[f"methods/{name}.md"]
        assert "## Slots" in page
        assert f'Objective.preset("{name}")' in page
    assert "`use_ema_smoothing: True` | `smoothing.kind=ema`" in found["tables/source_000.md"]
    sigma = "| `sigma` | `0.2` | Width of the gate, in units of the ratio; infinity is no trust region. |"
    assert sigma in found["reference/objective/trust/gaussian.md"]
    assert "(trust/gaussian.md)" in found["reference/objective/trust.md"]
    assert "# `exact_answer`" in found["reference/rewards/exact_answer.md"]
    assert "| `group_size` | `8` | members sampled for each prompt. |" in found["reference/experiment/train.md"]
    assert '| `description` | `""` |' in found["reference/experiment.md"], "an empty text is written with its quotes"
    assert not [path for path, page in found.items() if re.search(r"\| `` \|", page)]


@pytest.mark.slow
def test_every_method_page_is_whole(generated: dict[str, str]) -> None:
    import generate

    from groupwise.objective.preset import read_method

    for name in method_names():
        page, method = generated[f"methods/{name}.md"], read_method(name)
        for part in (
            "It maximises",
            "**Paper.**",
            "**When to use it.**",
            "**How it fails.**",
            "## Slots",
            "## Metrics",
            "## Citation",
            "@misc{",
        ):
            assert part in page, (name, part)
        assert ("**Where it differs from the paper.**" in page) == bool(method.deviations)
        (paper,) = re.findall(r"^\*\*Paper\.\*\* (.+)$", page, re.MULTILINE)
        assert paper.count(",") < 8, f"{name}: the paper's authors are shortened; the citation has them all"
        authors = method.paper.authors
        assert authors.split(" and ")[-1] in page.partition("## Citation")[2], name
        drawn = generate.on_page_markdown(page)
        assert "<math" in drawn, name
        assert "\\frac" not in drawn, name
        assert "<mi>log</mi>" not in drawn, name  # it would touch what stands before it


@pytest.mark.slow
def test_every_metric_of_a_method_has_a_meaning() -> None:
    import generate

    # A metric that the page of metrics does not explain raises KeyError.
    found = {name: generate.own_metrics(name) for name in method_names()}
    assert "sapo/gradient_weight_mean" in found["sapo"]
    assert set(found["ema"]) >= {
        "ema/variance_reduction_ratio",
        "ema/raw_weights_variance",
        "ema/smoothed_weights_variance",
    }
    assert "ptrw/trust_weights_mean" in found["aggressive"]
