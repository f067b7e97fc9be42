"""Variants of a comparison share a warm-up exactly where what it is trained by is the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.experiment.tiny import TINY

from groupwise.config import ConfigError
from groupwise.experiment.loaded_run import check_start
from groupwise.experiment.loading import load_experiment
from groupwise.experiment.runner import run
from groupwise.experiment.schema import Experiment
from groupwise_look.compare.comparison import reads, share, warm_up_of
from groupwise_look.compare.grids import Cell, Variant, lay_out


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


IS_SHARED = {
    "method=grpo": True,
    "trust.high=0.2": True,
    "train.group_size=8": True,
    "stages.grpo.num_steps=5": True,
    "stages.warm_up.num_steps=4": False,
    "stages.warm_up.set.auxiliary.supervised=0.5": False,
    "optimiser.learning_rate=2e-3": False,
    "train.demonstrations_per_step=4": False,
    "train.max_grad_norm=0.1": False,
    "train.weight_average.decay=0.9": False,
    "train.minibatches=2": False,
    "domain.model.shape.hidden_size=8": False,
    "domain.rewards.correct.weight=2.0": True,
    "domain.rewards.brief={kind='length',target=3}": True,
}


def test_a_warm_up_is_shared_where_all_that_its_training_reads_is_equal(tiny: Path) -> None:
    read = reads(load_experiment(tiny))
    assert {override: reads(load_experiment(tiny, [override])) == read for override in IS_SHARED} == IS_SHARED


@pytest.mark.parametrize(
    "ending",
    [
        ["train.early_stopping.patience=1", "train.evaluate_every=1"],
        ["train.callbacks=['json:dumps']"],
        ["train.max_seconds=9"],
    ],
)
def test_rewards_count_where_they_may_end_the_warm_up(tiny: Path, ending: list[str]) -> None:
    heavier = load_experiment(tiny, [*ending, "domain.rewards.correct.weight=2.0"])
    assert reads(load_experiment(tiny, ending)) != reads(heavier)


def grid(tiny: Path, out: Path, *overrides: str) -> tuple[dict[Variant, Experiment], list[Cell]]:
    experiments = {Variant((override,)): load_experiment(tiny, [override]) for override in overrides}
    cells = lay_out(out, "tiny", {variant: experiment.table() for variant, experiment in experiments.items()}, range(2))
    return experiments, cells


def test_two_variants_share_and_a_third_has_its_own(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "grid"
    experiments, cells = grid(tiny, out, "method=dapo", "method=grpo", "optimiser.learning_rate=2e-3")
    warm_ups, started = share(out, experiments, cells)
    assert [cell.seed for cell in warm_ups] == [0, 1]
    assert [cell.start for cell in started] == [
        *(warm_ups[0].folder, warm_ups[0].folder, None),
        *(warm_ups[1].folder, warm_ups[1].folder, None),
    ]
    assert f'start="{warm_ups[0].folder}"' in started[0].command()
    written = json.loads((warm_ups[0].folder.parent / "experiment.json").read_text())
    assert [stage["name"] for stage in written["stages"]] == ["warm_up"]
    assert written["controls"] == {}
    # Called again it finds the same folders; what has ended needs no warm-up any more.
    for cell in cells[:3]:
        cell.folder.mkdir()
        (cell.folder / "summary.json").write_text("{}")
    assert [cell.seed for cell in share(out, experiments, cells)[0]] == [1]


def test_a_single_variant_does_its_own_warm_up(tiny: Path, tmp_path: Path) -> None:
    experiments, cells = grid(tiny, tmp_path / "grid", "method=dapo")
    assert share(tmp_path / "grid", experiments, cells) == ([], cells)


def test_an_experiment_without_a_warm_up_has_none_to_share(tiny: Path, tmp_path: Path) -> None:
    text, _, _ = TINY.partition("[[stages]]")
    tiny.write_text(text)
    assert warm_up_of(load_experiment(tiny)) is None
    tiny.write_text(TINY)
    assert warm_up_of(load_experiment(tiny, ["start=runs/a"])) is None


@pytest.mark.slow
def test_a_run_of_other_rewards_ends_the_same_from_a_shared_warm_up(tiny: Path, tmp_path: Path) -> None:
    rewards = ["domain.rewards.correct.weight=2.0", "domain.rewards.brief={kind='length',unit='characters',target=3}"]
    run(load_experiment(tiny), tmp_path / "shared", controls=False)
    run(load_experiment(tiny, rewards), tmp_path / "alone", controls=False)
    started = load_experiment(tiny, [*rewards, f"start={tmp_path / 'shared'}"])
    run(started, tmp_path / "started", controls=False)
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("alone", "started")]
    assert weights[0] == weights[1]


def test_a_start_inside_a_run_is_told_the_run(tiny: Path, tmp_path: Path) -> None:
    run(load_experiment(tiny, ["stages.grpo.num_steps=1"]), tmp_path / "shared", controls=False)
    checkpoint = next((tmp_path / "shared" / "checkpoints").iterdir())
    for inside in (checkpoint, tmp_path / "shared" / "warm_up", tmp_path / "shared" / "nowhere"):
        expected = re.escape(f"start = '{inside}': it lies in the run {tmp_path / 'shared'}, and a start is the end of")
        with pytest.raises(ConfigError, match=f"^{expected}"):
            check_start(load_experiment(tiny, [f"start={inside}"]))
