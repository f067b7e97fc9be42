"""The doctor's bench: its faults are read and checked, and its table says what its lines hold."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.experiment.tiny import TINY

from groupwise.config import ConfigError
from groupwise_look.diagnosis import RULES

ROOT = Path(__file__).resolve().parents[2]
LINES = ROOT / "benchmarks" / "results" / "doctor_bench.jsonl"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import doctor_bench

    return doctor_bench


def test_thirty_kinds_of_faults_over_four_domains_half_of_them_by_an_outsider(bench: Any) -> None:
    known = bench.cases()
    faults = [case for case in known.values() if case.is_fault]
    assert len(faults) >= 30
    assert {case.base.domain for case in faults} == {"language", "diffusion", "restoration", "selection"}
    planted = Counter(case.planted_by for case in faults)
    assert len(faults) - planted["author"] >= len(faults) / 2
    assert sum(not case.is_fault for case in known.values()) >= 30


def test_what_counts_as_named_are_rules(bench: Any) -> None:
    rules = {rule.name for rule in RULES}
    for case in bench.cases().values():
        assert set(case.names) <= rules, case.name
        assert case.is_fault or not case.names, case.name


def test_it_is_said_which_fault_no_finding_names(bench: Any) -> None:
    """Of a fault that only its symptoms show, none counts as naming it, and its runs count as missed."""
    unnamed = [name for name, case in bench.cases().items() if case.is_fault and not case.names]
    assert unnamed == ["end_token_after_the_prompt"]


def test_the_published_table_is_that_of_the_lines(bench: Any) -> None:
    rows = [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]
    known = bench.cases()
    assert LINES.with_suffix(".md").read_text(encoding="utf-8") == bench.doctor_bench_table.document(
        known, bench.current(rows, known)
    )


def test_opposite_advice_and_false_alarms_are_seen(bench: Any) -> None:
    table = bench.doctor_bench_table
    row = {"name": "a", "seed": 0, "alarms": ["learning_rate_too_high", "all_flat"], "headline": "all_flat"}
    assert not table.opposite(row)
    assert table.opposite({**row, "alarms": ["learning_rate_too_high", "learning_rate_too_low"]})
    fault = bench.cases()["rate_far_too_high"]
    assert table.named(fault, row)
    assert not table.headline_right(fault, row)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[[fault]]\nname = "a"\nbase = "b"\n[[fault]]\nname = "a"\nbase = "b"\n', "two cases are called 'a'"),
        ('[[fault]]\nname = "a"\nbase = "nowhere"\n', "base = 'nowhere'; write one of b"),
        ('[[fault]]\nname = "a"\nbase = "b"\nsett = []\n', "sett"),
    ],
)
def test_a_mistake_in_a_file_of_faults_is_named(bench: Any, text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "bases.toml").write_text('[base.b]\nexperiment = "language"\ndomain = "language"\n')
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ConfigError, match=what):
        bench.cases(tmp_path)


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
