"""The page of metrics names all that a run writes, and nothing that no code writes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests import laws
from tests.training.toy import job, recipe, supervised

from groupwise.objective import Objective
from groupwise.objective.preset import method_names, overlay_names
from groupwise.records import Rollouts
from groupwise.reference import EmaReference
from groupwise.statistics import finish
from groupwise.training import train

ROOT = Path(__file__).resolve().parents[2]


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
