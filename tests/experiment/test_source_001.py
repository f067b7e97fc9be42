"""Source 001's experiments themselves, a few steps of each stage: what they watch, by the table's names, and that each
number is what its name says.
"""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path
from typing import Any

import pytest

from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run
from groupwise.track import read_metrics

TABLE = Path(__file__).resolve().parents[2] / "src" / "groupwise" / "presets" / "keys" / "source_001.toml"
NUM = 3
SMALL = [
    "domain.evaluation.num_images=2",
    "domain.source.num_train=16",
    "train.demonstrations_per_step=2",
    "domain.source.num_held_out=2",
    "track.console=none",
    "controls=null",
    "train.prompts_per_step=2",
]
Rows = list[dict[str, Any]]


def stages_of(name: str, folder: Path, *overrides: str) -> dict[str, Rows]:
    experiment = load_experiment(
        name, [*SMALL, *overrides, *(f"stages.{stage.name}.num_steps={NUM}" for stage in load_experiment(name).stages)]
    )
    run(experiment, folder / "run")
    rows = [row for row in read_metrics(folder / "run" / "metrics.jsonl") if "grad_norm" in row]
    return {stage: list(stage_rows) for stage, stage_rows in itertools.groupby(rows, key=lambda row: row["stage"])}


def watched() -> set[str]:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name for section in table["section"] for key in section["key"] for name in key.get("metrics", ())}


@pytest.mark.slow
def test_the_progressive_stages(tmp_path: Path) -> None:
    stages = stages_of("source_001_progressive", tmp_path)
    assert list(stages) == ["base", "supervised", "progressive", "full"]
    for row in (*stages["base"], *stages["supervised"]):
        assert row["lambda_pg"] == 0
        assert row["lambda_sup"] == 1
        assert row["loss"] == pytest.approx(row["loss_sup"])
        assert "rewards_mean" not in row
    sampled = [*stages["progressive"], *stages["full"]]
    for row in sampled:
        assert watched() <= set(row)
        assert row["lambda_pg"] == 1
        assert row["loss"] == pytest.approx(
            row["loss_pg"] + row["loss_sup"] + row["loss_cons"] + row["loss_kl"], rel=1e-6
        )
        assert row["rewards_mean"] == pytest.approx(0.6 * row["rewards/psnr/mean"] + 0.4 * row["rewards/ssim/mean"])
        assert 0 < row["loss_kl"] != pytest.approx(row["loss_cons"])
    assert [row["group_size"] for row in sampled] == [2] * NUM + [3] * NUM
    # Two updates a step, four hundred to come down; a rate that rises over its warm-up and is another one in the last
    # stage.
    assert [row["lambda_sup"] for row in sampled] == pytest.approx(
        [0.5 - 0.25 * 2 * step / 400 for step in range(NUM)] + [0.25] * NUM
    )
    rates = [5e-6 * (step + 1) / 40 for step in range(NUM)] + [2e-6 * (step + 1) / 20 for step in range(NUM)]
    assert [row["learning_rate"] for row in sampled] == pytest.approx(rates)
    # An average of what was seen, from the first batch on, through both stages.
    weights = [0.99 ** (len(sampled) - 1 - place) for place in range(len(sampled))]
    for name, batch_metric in (("global_reward_mean", "rewards_mean"), ("global_reward_std", "rewards_std")):
        assert sampled[0][name] == pytest.approx(sampled[0][batch_metric])
        assert sampled[-1][name] == pytest.approx(
            sum(weight * row[batch_metric] for weight, row in zip(weights, sampled, strict=True)) / sum(weights)
        )
    # In groups of two the comparison is even; the first batch is scaled by its own spread.
    assert all(abs(row["advantages_mean"]) < 1e-9 for row in stages["progressive"])
    assert sampled[0]["advantages_std"] == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_the_quick_run_is_supervised_first_and_its_flags_are_overrides(tmp_path: Path) -> None:
    """The source's advice for a supervised loss that does not fall, and for a policy loss that does not."""
    advice = [
        "auxiliary.supervised=0.8",
        "optimiser.learning_rate=2e-6",
        "train.max_grad_norm=0.5",
        "trust.low=0.1",
        "trust.high=0.1",
    ]
    stages = stages_of("source_001_improved", tmp_path, *advice)
    assert list(stages) == ["base", "warm_up", "improved"]
    assert {row["lambda_pg"] for row in stages["warm_up"]} == {0.0}
    assert not any("rewards_mean" in row for row in stages["warm_up"])
    assert {row["lambda_sup"] for row in (*stages["warm_up"], *stages["improved"])} == {0.8}
    assert [row["learning_rate"] for row in stages["improved"]] == pytest.approx(
        [2e-6 * (step + 1) / 100 for step in range(NUM)]
    )
    assert {row["group_size"] for row in stages["improved"]} == {2}
    assert watched() <= set(stages["improved"][0])
