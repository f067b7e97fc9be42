"""The runs: three steps of the real loop, two updates on each batch so that ratios leave one, everything in fp64.

A domain joins by one entry in `DOMAINS`: a function from a scratch folder to an experiment table in fp64, without a
method. What is recorded are the losses, the gradient norms and one number that depends on every weight. `python -m
tests.golden_runs.record [DOMAIN ...]` writes them anew.

Their settings make them well conditioned, so that they hold on every processor: steps that move ratios by a tenth and
more, so that trust regions act, and not by factors of a thousand (an estimate of the divergence is an exponential of
the log-ratio); an eps that leaves nearly plain gradient descent, for Adam's division by the root of a tiny second
moment makes a rounding error a step; as few steps as show every part of a method at work.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.golden_runs import diffusion, language, restoration, selection
from tests.golden_runs.wide import wide

from groupwise.checkpoint import load_tree
from groupwise.config import ConfigError, merge
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run
from groupwise.track import read_metrics

DOMAINS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "language": language.table,
    "diffusion": diffusion.table,
    "restoration": restoration.table,
    "selection": selection.table,
}

NUM_STEPS = 3
TOLERANCE = 1e-8
"""Relative to the larger of the number and one: not equality of bits. Other libraries and processors round and order
sums differently, an error of 1e-16 or so that a well-conditioned course magnifies tenfold at most: weights nudged by
1e-9 stay inside (a slow test), so that rounding has a room of 1e6 and more. A change of the mathematics leaves 1e-3 and
more, and one of 1e-6 is noticed in every domain.
"""

COMMON = {
    "seed": 7,
    "train": {"num_steps": NUM_STEPS, "updates_per_batch": 2},
    "checkpoint": {"every": NUM_STEPS},
    "track": {"console": "none"},
}


def recorded(domain: str) -> Path:
    """Where a domain's numbers are kept."""
    return Path(__file__).with_name(f"{domain}.json")


def golden_run(domain: str, method: str, folder: Path) -> dict[str, Any]:
    """What a run of this method in this domain did: `loss`, `grad_norm`, `weights`; or `refused`, why the domain cannot
    serve the method.

    Args:
        domain: a key of `DOMAINS`.
        method: a preset.
        folder: an empty scratch folder.
    """
    with wide():
        tree = merge(merge(DOMAINS[domain](folder), COMMON), {"method": method})
    (folder / "experiment.json").write_text(json.dumps(tree), encoding="utf-8")
    try:
        with wide():
            result = run(load_experiment(folder / "experiment.json", run_code=True), folder / "run")
    except ConfigError as error:
        return {"refused": error.problems[0].message}
    rows = [row for row in read_metrics(result.folder.metrics) if "loss" in row]
    assert len(rows) == NUM_STEPS
    weights = load_tree(result.folder.checkpoints / f"step-{NUM_STEPS}")["learner"]["weights"]
    return {
        "loss": [row["loss"] for row in rows],
        "grad_norm": [row["grad_norm"] for row in rows],
        "weights": checksum(weights),
    }


def checksum(weights: dict[str, torch.Tensor]) -> float:
    """`sum_k w_k cos(k)` over all weights, by name: no two changes of a weight cancel.

    Example:
        >>> checksum({"a": torch.tensor([1.0, 0.0])})
        1.0
    """
    flat = torch.cat([value.double().flatten() for _, value in sorted(weights.items()) if value.is_floating_point()])
    return float((flat * torch.arange(len(flat), dtype=torch.float64).cos()).sum())
