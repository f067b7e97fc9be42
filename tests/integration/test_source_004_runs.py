"""Source 004's grids run: every variant of each for some steps, on fewer questions; and those that its formulas make
one run are one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run
from groupwise.track import read_metrics
from groupwise_look.compare.grids import variants

pytestmark = pytest.mark.nightly

SMALL = [
    "domain.source.num_rules=26",
    "domain.source.num_train=60",
    "domain.source.num_held_out=20",
    "domain.task_model.num_steps=300",
    "domain.model={ kind = 'pointer', width = 16, dtype = 'float64' }",
    "train.prompts_per_step=8",
    "train.group_size=8",
    "track.console=none",
]
GRIDS = {
    name: [variant.overrides for variant in variants(load_experiment(name).comparison.vary)]  # type: ignore[union-attr]
    for name in (
        "source_004",
        *(
            f"source_004_{name}"
            for name in ("rewards", "modes", "advantage", "weights", "adaptive", "shots", "legacy_then")
        ),
    )
}


def trained(name: str, overrides: tuple[str, ...] | list[str], folder: Path, steps: int = 2) -> Path:
    experiment = load_experiment(name)
    lengths = [f"stages.{stage.name}.num_steps={steps}" for stage in experiment.stages] or [f"train.num_steps={steps}"]
    return run(load_experiment(name, [*overrides, *SMALL, *lengths]), folder).folder.path


@pytest.mark.parametrize("name", GRIDS)
def test_every_variant_trains_and_is_evaluated(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path_factory.getbasetemp() / "source_004"))
    shown = load_experiment(name).comparison.show  # type: ignore[union-attr]
    for number, overrides in enumerate(GRIDS[name]):
        path = trained(name, overrides, tmp_path / str(number))
        rows = list(read_metrics(path / "metrics.jsonl"))
        last = next(row for row in reversed(rows) if "eval/selected/accuracy" in row)
        assert 0 <= last["eval/selected/accuracy"] <= 1
        assert all(f"eval/{metric}" in last for metric in shown), overrides
        assert json.loads((path / "summary.json").read_text())["steps"] > 0


def test_under_a_z_score_the_weights_of_the_third_grid_are_one_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two answers give a group two rewards at most, and a z-score maps any two to the same advantages; so does the
    second version of the reward.
    """
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path_factory.getbasetemp() / "source_004"))
    runs = [("source_004_weights", overrides) for overrides in GRIDS["source_004_weights"]] + [
        ("source_004_rewards", GRIDS["source_004_rewards"][2])
    ]
    first, *others = [
        load_file(trained(name, each, tmp_path / str(place), 6) / "model" / "model.safetensors")
        for place, (name, each) in enumerate(runs)
    ]
    start = load_file(
        trained("source_004_weights", GRIDS["source_004_weights"][0], tmp_path / "start", 1)
        / "model"
        / "model.safetensors"
    )
    assert max(float((first[name] - start[name]).abs().max()) for name in first) > 1e-3, "it trains"
    for other in others:
        assert max(float((first[name] - other[name]).abs().max()) for name in first) < 1e-6
