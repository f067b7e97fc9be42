"""What a stage overrides is in force in its span and nowhere else, in every domain: seen in the numbers of real runs
whose weights stand still.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.golden_runs.runs import DOMAINS

from groupwise.config import merge
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run
from groupwise.track import depends_on_machine, read_metrics

ANYWHERE: dict[str, dict[str, Any]] = {
    "advantage": {"advantage": {"kind": "rank"}},
    "trust": {"trust": {"kind": "cispo"}},
    "entropy": {"entropy": 0.1},
    "policy_weight": {"policy_weight": 2.0},
    "divergence": {"divergence": {"kind": "k3", "beta": 0.5}},
    "group_size": {"train": {"group_size": 6}},
    "evaluate_every": {"train": {"evaluate_every": 0}},
}
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "language": {
        "temperature": {"sampling": {"temperature": 0.3}},
        "weight": {"rewards": {"brief": {"weight": 2.0}}},
        "judge": {"rewards": {"brief": None}},
    },
    "diffusion": {"noise": {"sampler": {"noise": 0.2}}, "reduce": {"reduce": "mean"}, "num_steps": {"num_steps": 3}},
    "restoration": {
        "sigma": {"policy": {"sigma": 0.05}},
        "schedule": {"sampling_schedule": {"sigma": {"kind": "linear", "start": 0.5, "end": 0.1, "num_steps": 2}}},
        "degradation": {"degradation": {"kind": "blur", "sigma": 1.0}},
        "added": {"rewards": {"psnr": {"kind": "psnr"}}},
        "evaluation": {"evaluation": {"num_images": 2}},
    },
    "selection": {"temperature": {"temperature": 3.0}, "weight": {"rewards": {"coarse": {"weight": 3.0}}}},
}
QUICK = {("restoration", name) for name in ("group_size", "sigma")}
"""One of the loop's own and one of a domain's."""


def mark_of(domain: str, name: str) -> tuple[pytest.MarkDecorator, ...]:
    if (domain, name) in QUICK:
        return ()
    return (pytest.mark.slow if domain == "restoration" or name in OWN[domain] else pytest.mark.nightly,)


CASES = [
    pytest.param(domain, changes, id=f"{domain}-{name}", marks=mark_of(domain, name))
    for domain in DOMAINS
    for name, changes in {**ANYWHERE, **{name: {"domain": own} for name, own in OWN[domain].items()}}.items()
]


def stages(domain: str, changes: dict[str, Any]) -> dict[str, list[dict[str, float]]]:
    """The rows of three stages of which the second sets `changes`."""
    with TemporaryDirectory() as folder:
        spans = [
            {"name": "a", "num_steps": 2},
            {"name": "b", "num_steps": 2, "set": changes},
            {"name": "c", "num_steps": 2},
        ]
        still = {
            "optimiser": {"learning_rate": 0.0},
            "train": {"evaluate_every": 1},
            "stages": spans,
            "method": "grpo",
            "track": {"console": "none"},
        }
        path = Path(folder) / "experiment.json"
        path.write_text(
            json.dumps(merge(merge(DOMAINS[domain](Path(folder)), {"divergence": {"kind": "none"}}), still)),
            encoding="utf-8",
        )
        result = run(load_experiment(path, run_code=True), Path(folder) / "run")
        found: dict[str, list[dict[str, float]]] = {}
        for row in read_metrics(result.folder.metrics):
            found.setdefault(row["stage"], []).append(
                {name: value for name, value in row.items() if not depends_on_machine(name) and name != "stage"}
            )
        return found


@cache
def undisturbed(domain: str) -> dict[str, list[dict[str, float]]]:
    return stages(domain, {})


@pytest.mark.parametrize(("domain", "changes"), CASES)
def test_an_override_is_in_force_in_its_span_and_only_there(domain: str, changes: dict[str, Any]) -> None:
    found, base = stages(domain, changes), undisturbed(domain)
    assert found["a"] == base["a"]
    assert found["b"] != base["b"]
    assert found["c"][-2:] == base["c"][-2:]
