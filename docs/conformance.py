"""The page of the presets inside other trainers, from `benchmarks/results/conformance.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "conformance.json"
SYSTEMS = {"trl": "TRL", "verl": "verl", "skyrl": "SkyRL"}
ROUTES = {
    "trl": (
        "TRL's trainer on a small model in fp32: generation, rewards, two micro-batches, the gradient of all weights at"
        " an optimiser step off-policy; beside it a plain forward pass and the objective."
    ),
    "verl": (
        "verl's registry of estimators, its KL in the reward, then its `ppo_loss` with its KL term and its counts of"
        " the step, as two processes of two micro-batches; fp64."
    ),
    "skyrl": (
        "SkyRL's two registries, its scaling of advantages over the step, four micro-batches, its KL estimate weighed"
        " as its worker does; fp64. Its worker itself needs a GPU."
    ),
}


def page() -> str:
    """Returns the page: what ran, then a row a preset, then the reasons of what is refused."""
    table = json.loads(RESULTS.read_text(encoding="utf-8"))
    names = sorted({name for system in table.values() for name in system["presets"]})
    systems = [system for system in SYSTEMS if system in table]
    lines = [
        "# Conformance",
        "",
        "Every preset in every trainer that can be installed here, through that trainer's own code, beside the loss of"
        " the objective on the whole batch. A cell holds two relative differences: of the loss, and of the gradient by"
        " its norm. The members have uneven lengths, in verl and SkyRL a tool wrote some of their tokens,"
        " the ratios lie on both sides of every clip. Nothing is said of a pair that did not run."
        " `make conformance` measures it again.",
        "",
        *(f"- **{SYSTEMS[system]} {table[system]['version']}**: {ROUTES[system]}" for system in systems),
        "",
        f"| preset | {' | '.join(SYSTEMS[system] for system in systems)} |",
        "|---" * (len(systems) + 1) + "|",
        *(
            f"| [`{name}`](../methods/{name}.md) | "
            + " | ".join(cell(table[system]["presets"].get(name)) for system in systems)
            + " |"
            for name in names
        ),
        "",
        "## Refused, and not run",
        "",
    ]
    for system in systems:
        for name, row in sorted(table[system]["presets"].items()):
            if reason := row.get("refused") or row.get("not_run"):
                lines.append(f"- **{SYSTEMS[system]}, `{name}`**: {reason}.")
    return "\n".join(lines) + "\n"


def cell(row: Mapping[str, Any] | None) -> str:
    """Returns the cell of a pair."""
    if row is None or "not_run" in row:
        return "not run"
    if "refused" in row:
        return "refused"
    return f"{row['value']:.0e}, {row['gradient']:.0e}"
