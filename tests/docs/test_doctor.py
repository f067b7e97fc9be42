"""The page of `groupwise doctor` holds every rule as the code has it."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import laws
from tests.experiment.tiny import TINY
from tests.training.toy import job, recipe, supervised

from groupwise.experiment.schema import file_schema
from groupwise.objective import Objective
from groupwise.objective.preset import method_names, overlay_names
from groupwise.records import Rollouts
from groupwise.reference import EmaReference
from groupwise.statistics import finish
from groupwise.training.run.launch import train
from groupwise_look.diagnosis import RULES


def test_the_rules_are_those_of_the_code() -> None:
    spec = importlib.util.spec_from_file_location("doctor_page", ROOT / "docs" / "doctor.py")
    assert spec is not None
    assert spec.loader is not None
    doctor = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(doctor)
    page = Path(doctor.PAGE).read_text(encoding="utf-8")
    assert page == doctor.written(page), "run: python docs/doctor.py"


def test_rules_read_metrics_that_the_page_of_metrics_names() -> None:
    names = {re.sub("NAME|JUDGE", "x", metric) for rule in RULES for metric in rule.reads}
    assert {name for name in names if not any(pattern.fullmatch(name) for pattern in PATTERNS)} == set()


def test_a_rule_says_what_to_set() -> None:
    for rule in RULES:
        assert rule.question.endswith("?"), rule.name
        assert rule.severity == "note" or re.search(r"[a-z_]+\.[a-z_]+|method|groupwise|see ", rule.advice), rule.name


@pytest.mark.slow
def test_rules_name_kinds_and_methods_that_there_are() -> None:
    kinds = _kinds(file_schema())
    for rule in RULES:
        text = f"{rule.advice} {rule.speaks}"
        for named in re.findall(r"[.]kind = ([a-z]\w*(?:,? or [a-z]\w*|, [a-z]\w*(?= or|,))*)", text):
            assert set(re.split(r",? or |, ", named)) <= kinds, (rule.name, named)
        for named in re.findall(r"[(](?:as )?methods? (.*?)(?: does| do)?[)]", text):
            assert set(re.split(r", | and ", named)) <= set(method_names()), (rule.name, named)


def _kinds(schema: Any) -> set[str]:
    """All values of a key `kind` in a JSON schema."""
    if isinstance(schema, list):
        return {name for part in schema for name in _kinds(part)}
    if not isinstance(schema, dict):
        return set()
    kind = schema.get("properties", {}).get("kind", {}) if isinstance(schema.get("properties"), dict) else {}
    names = {kind["const"]} if isinstance(kind, dict) and "const" in kind else set()
    return names.union(*(_kinds(part) for part in schema.values()))


# The doctor's bench: its faults are read and checked, and its table says what its lines hold.


ROOT = Path(__file__).resolve().parents[2]
LINES = ROOT / "benchmarks" / "results" / "doctor_bench.jsonl"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import doctor_bench

    return doctor_bench


def test_what_counts_as_named_are_rules(bench: Any) -> None:
    rules = {rule.name for rule in RULES}
    for case in bench.cases().values():
        assert set(case.names) <= rules, case.name
        assert case.is_fault or not case.names, case.name


def test_the_published_table_is_that_of_the_lines(bench: Any) -> None:
    rows = [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]
    known = bench.cases()
    assert LINES.with_suffix(".md").read_text(encoding="utf-8") == bench.doctor_bench_table.document(
        known, bench.current(rows, known)
    )


@pytest.mark.slow
def test_a_fault_is_planted_by_its_hook_and_a_refused_one_is_a_line_too(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import doctor_bench_run
    from doctor_bench_faults import Base, Case

    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    (tmp_path / "bench_hook.py").write_text(
        "from pathlib import Path\n\ndef hook():\n    Path('planted').write_text('yes')\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    base = Base(experiment=str(tmp_path / "tiny.toml"), domain="language")
    entry = {"description": "", "cause": "", "hook": "bench_hook:hook", "fresh": False, "planted_by": "me", "names": ()}
    good = Case(name="good", base=base, set=(), **entry)
    row = doctor_bench_run.measured(good, 0, tmp_path / "runs", 120)
    assert (row["exit"], row["alarms"]) == (0, [])
    assert (tmp_path / "planted").read_text() == "yes"
    kept = {path.name for path in (tmp_path / "runs" / f"good-0-{good.digest}").iterdir()}
    assert {"metrics.jsonl", "config.json"} <= kept <= {"metrics.jsonl", "config.json", "summary.json", "rollouts"}
    refused = Case(name="refused", base=base, set=("train.group_size=nonsense",), **entry)
    row = doctor_bench_run.measured(refused, 0, tmp_path / "runs", 120)
    assert row["exit"] == 2
    assert "group_size" in row["error"]


# The page of metrics names all that a run writes, and nothing that no code writes.


def named() -> list[str]:
    """The names in the first column of the page's tables."""
    rows = [line for line in (ROOT / "docs/guide/metrics.md").read_text().splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


PATTERNS = [
    re.compile(re.sub("[A-Z]{4,}", "[^/]+(/[^/]+)*" if name.startswith("eval/") else "[^/]+", name)) for name in named()
]


def unnamed(names: set[str]) -> set[str]:
    return {
        name
        for name in names
        if not any(pattern.fullmatch(name) for pattern in PATTERNS if pattern.pattern != "loss_[^/]+")
    }


def rollouts() -> Rollouts:
    return laws.world().rollouts(shift=1.0)


@pytest.mark.parametrize("name", [*method_names(), *(f"dapo+{overlay}" for overlay in overlay_names())])
def test_every_method_measures_what_the_page_names(name: str) -> None:
    objective = Objective.preset(name)
    batch = objective.prepare(rollouts(), objective.init())
    found = objective.loss(laws.world().scored(), objective.plan(batch)).statistics
    assert unnamed(set(finish({**batch.statistics, **found}))) == set()


@pytest.mark.slow
def test_two_runs_write_what_the_page_names(tmp_path: Path) -> None:
    first = recipe(
        "smooth",
        "all_compatible",
        updates_per_batch=2,
        evaluate_every=2,
        objective={"entropy": 0.01, "advantage.kind": "running_std"},
    )
    second = recipe("plain", "grpo", updates_per_batch=2, minibatches=2, objective={"auxiliary.supervised": 0.1})
    for number, recipes in enumerate(((supervised(), first), (replace(second, reference=EmaReference(decay=0.5)),))):
        folder = tmp_path / str(number)
        train(job(*recipes), folder)
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert unnamed({name for row in rows for name in row}) == set()
        assert all(row["scored_share"] <= 1 for row in rows if "scored_share" in row)


def test_the_page_names_nothing_that_no_code_writes() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for name in named():
        words = [word for word in re.split("/|[A-Z]{4,}", name) if word]
        assert all(word.removeprefix("loss_") in source or word.removeprefix("p").isdigit() for word in words), name
