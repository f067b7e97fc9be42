"""Runs of one seed share what they can: shown on real runs of three domains, whose methods and group sizes differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.experiment import load_experiment, run
from groupwise_look.compare.statistics import DATA, SAMPLES, START, shared


def trained(experiment: str | Path, out: Path, *changes: str) -> Path:
    return run(load_experiment(experiment, [*changes, "track.console=none"]), out, controls=False).folder.path


@pytest.mark.slow
def test_methods_group_sizes_and_trust_regions_share_data_weights_and_noise(tiny: Path, tmp_path: Path):
    grpo_run = trained(tiny, tmp_path / "grpo", "method=grpo")
    gspo_run = trained(tiny, tmp_path / "gspo", "method=gspo", "train.group_size=6", "trust.high=0.5")
    run_of_other_seed = trained(tiny, tmp_path / "seed", "method=grpo", "seed=1")
    assert shared(grpo_run, gspo_run) == (DATA, START, SAMPLES)
    assert shared(grpo_run, run_of_other_seed) == (DATA,)
    wider = trained(tiny, tmp_path / "wider", "method=grpo", "domain.model.shape.hidden_size=32")
    assert shared(grpo_run, wider) == (DATA,)
    # A folder that is cut off shares what it still shows.
    members = next(gspo_run.glob("rollouts/step-*.jsonl"))
    members.write_text(members.read_text()[:-40])
    assert shared(grpo_run, gspo_run) == (DATA, START, SAMPLES)
    members.unlink()
    assert shared(grpo_run, gspo_run) == ()


SHORT = {
    "restoration": [
        "stages.supervised.num_steps=2",
        "stages.grpo.num_steps=1",
        "domain.source.num_train=64",
        "domain.evaluation.repeats=1",
    ],
    "diffusion": [
        "stages.warm_up.num_steps=2",
        "stages.grpo.num_steps=1",
        "domain.evaluation.num_images=10",
        "domain.num_steps=4",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("domain", SHORT)
def test_runs_of_images_share_data_start_and_samples(domain: str, tmp_path: Path):
    changes = [*SHORT[domain], "train.prompts_per_step=4", "train.group_size=4"]
    grpo_run = trained(domain, tmp_path / "grpo", "method=grpo", "divergence.kind=none", *changes)
    ptrw_run = trained(domain, tmp_path / "ptrw", "method=ptrw", *changes)
    assert shared(grpo_run, ptrw_run) == (DATA, START, SAMPLES)
    assert shared(grpo_run, trained(domain, tmp_path / "seed", "method=ptrw", "seed=1", *changes)) == (DATA,)
