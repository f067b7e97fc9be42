"""Transformers and UNets of diffusers whose weights are sharded over two processes end where one process ends: whole
and with an adapter, with log-probs and with noised copies, with references of every kind.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.domain.diffusion.models.tiny import saved
from tests.domain.diffusion.small import domain
from tests.golden_runs import diffusion as golden
from tests.training.test_sharding import gaps, launch, newest

from groupwise.config import ConfigError, merge
from groupwise.domain.diffusion.scorer import Scorer
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run
from groupwise.track import read_metrics

BOUND = 1e-12
"""Of weights of size one in fp64: the sums over some ten members round in another order (1e-16 of a gradient of at
most 300), and two updates with a large eps hardly magnify that.
"""

UNET = {
    "name": "UNet2DModel",
    "shape": {
        "sample_size": 8,
        "in_channels": 1,
        "out_channels": 1,
        "block_out_channels": [4, 8],
        "norm_num_groups": 2,
        "layers_per_block": 1,
        "attention_head_dim": 4,
        "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
        "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
        "num_class_embeds": 10,
    },
    "scheduler": {"name": "DDIMScheduler"},
}
VARIANTS: dict[str, dict[str, Any]] = {
    # Three prompts for two processes, so that shares and numbers of passes differ.
    "dit": {
        "method": "flow_grpo",
        "auxiliary": {"supervised": 0.3},
        "reference": {"kind": "ema", "decay": 0.5},
        "domain": {"model": {"shape": {"num_layers": 2}}, "demonstrations": {}, "guidance": 2.0},
        "train": {"weight_average": {"decay": 0.5}, "l2_to_reference": 0.1, "demonstrations_per_step": 3},
    },
    "unet": {
        "method": "grpo",
        "divergence": {"kind": "k3", "beta": 0.1},
        "reference": {"kind": "periodic", "sync_steps": 1, "alpha": 0.5},
        "domain": {"model": UNET, "sampler": {"kind": "ddim", "eta": 1.0}},
        "train": {"gradient_checkpointing": True, "micro_batch_members": "auto", "memory_limit_gib": 16.0},
    },
    "StableDiffusionPipeline": {
        "method": "grpo",
        "divergence": {"kind": "k3", "beta": 0.1},
        "domain": {"model": {"lora": {"rank": 2}}, "sampler": {"kind": "ddim", "eta": 1.0}, "guidance": 2.0},
    },
    "StableDiffusion3Pipeline": {"method": "diffusion_nft", "reference": {"kind": "frozen"}},
    "FluxPipeline": {"method": "awm"},
}


def experiment(name: str, folder: Path, sharding: str) -> dict[str, Any]:
    """The file of a run of two updates in which everything is fp64."""
    table = golden.table(folder)
    train = {"num_steps": 2, "prompts_per_step": 3, "group_size": 4, "micro_batch_members": 3, "sharding": sharding}
    table = merge(
        table,
        {
            "train": train,
            "checkpoint": {"every": 1, "keep_best": False},
            "track": {"console": "none"},
            "seed": 3,
        },
    )
    if name.endswith("Pipeline"):
        (folder / "prompts.txt").write_text("a red cat\ntwo dogs\na tree\n")
        table["domain"] |= {
            "model": {"kind": "pretrained", "path": str(folder / name), "dtype": "float64", "size": [16, 16]},
            "data": {"source": {"kind": "prompts", "path": str(folder / "prompts.txt")}},
        }
    changes = dict(VARIANTS[name])
    if name == "unet":
        table["domain"]["model"] = {"kind": "scratch", "dtype": "float64"}
    return merge(table, changes)


@pytest.mark.slow
def test_two_processes_with_shards_end_where_one_process_ends(tmp_path: Path) -> None:
    for name in VARIANTS:
        if name.endswith("Pipeline"):
            saved(name, tmp_path / name)
        for sharding in ("none", "full"):
            (tmp_path / f"{name}-{sharding}.json").write_text(json.dumps(experiment(name, tmp_path, sharding)))
    launch([f"{name}-full" for name in VARIANTS], tmp_path, 2)
    for name in VARIANTS:
        run(load_experiment(tmp_path / f"{name}-none.json", run_code=True), tmp_path / f"{name}-none")
        one, shards = (newest(tmp_path / f"{name}-{sharding}") for sharding in ("none", "full"))
        parts = ("learner", "reference", "average")
        differences = gaps(*({part: record[part] for part in parts} for record in (shards, one)))
        assert {place: gap for place, gap in differences.items() if not gap <= BOUND} == {}, name
        rows = [list(read_metrics(tmp_path / f"{name}-{sharding}" / "metrics.jsonl")) for sharding in ("none", "full")]
        for metric in ("grad_norm", "eval/ode/bright"):
            assert rows[1][-1][metric] == pytest.approx(rows[0][-1][metric], rel=1e-9), name
        assert rows[0][-1]["updates/taken"] > 0, name
        assert all((tmp_path / f"{name}-{sharding}" / "model").is_dir() for sharding in ("none", "full"))


def test_slices_by_the_number_of_transitions_are_refused() -> None:
    sampling = domain({"transitions_at_once": 5})
    scorer = Scorer(sampling.denoiser)
    scorer.serve(sampling.config)
    with pytest.raises(ConfigError, match=r"domain.transitions_at_once = 5 .* write train.micro_batch_members = 1"):
        scorer.shard(None)  # type: ignore[arg-type]
    assert not scorer.sharded


def test_a_stage_with_other_settings_scores_through_the_same_weights() -> None:
    base = domain()
    adapted = base.adapted(base.config.model_copy(update={"guidance": 2.0}))
    assert adapted is not base
    assert adapted.learner is base.learner
    assert adapted._scorer is base._scorer
