"""`groupwise train diffusion --model FOLDER --prompts FILE` on every pipeline, as the command resolves it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from safetensors.torch import load_file
from tests.images.diffusion.models.test_pipeline import STEPS as NUM_STEPS
from tests.images.diffusion.models.test_pipeline import by_the_pipeline, ode, prompts
from tests.images.diffusion.models.tiny import ALL_PIPELINES, others_slow, saved

from groupwise.cli.arguments import load
from groupwise.cli.trained import trained
from groupwise.experiment.runner import job_of, open_domain, resume, run
from groupwise.streams import Streams
from groupwise.track import read_metrics

SMALL = [
    "domain.num_steps=3",
    "domain.guidance=2.0",
    "domain.evaluation.num_prompts=1",
    "train.group_size=2",
    "train.num_steps=2",
    "optimiser.learning_rate=1e-3",
    "track.console=none",
    "track.rollouts_every=1",
]


SIZES = {"WanPipeline": (5, 16, 32)}


def asked(folder: Path, name: str) -> str:
    """A file of two prompts."""
    file = folder / "prompts.txt"
    file.write_text("class 3\nclass 7\n" if name == "DiTPipeline" else "a red cat\ntwo dogs\n")
    return str(file)


def experiment(folder: Path, name: str, model: Path, *overrides: str) -> Any:
    size = () if name == "DiTPipeline" else (f"domain.model.size={list(SIZES.get(name, (16, 16)))}",)
    return load("diffusion", [*SMALL, *size, *overrides], model=str(model), prompts=asked(folder, name))


@pytest.mark.parametrize("name", others_slow(ALL_PIPELINES))
def test_every_pipeline_trains_and_is_saved_as_one(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path / "base")
    result = run(experiment(tmp_path, name, model), tmp_path / "run")
    rows = list(read_metrics(tmp_path / "run" / "metrics.jsonl"))
    assert rows[-1]["updates/taken"] == 1
    assert rows[-1]["kl"] > 0
    assert rows[0]["eval/ode/small"] == result.summary["before"]
    pipe = diffusers.DiffusionPipeline.from_pretrained(tmp_path / "run" / "model")
    assert type(pipe).__name__ == name
    part = "unet" if hasattr(pipe, "unet") else "transformer"
    before, after = (
        load_file(next((folder / part).glob("*.safetensors"))) for folder in (model, tmp_path / "run" / "model")
    )
    assert any(not torch.equal(value, after[key]) for key, value in before.items())
    records = [
        json.loads(line) for line in next((tmp_path / "run" / "rollouts").glob("step-*.jsonl")).read_text().splitlines()
    ]
    assert len(records) == 4
    assert all((tmp_path / "run" / record["image"]).is_file() for record in records)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["QwenImagePipeline", "WanPipeline"])
def test_the_lora_of_a_run_gives_its_images_in_plain_diffusers(name: str, tmp_path: Path) -> None:
    model, size = saved(name, tmp_path / "base"), SIZES.get(name, (16, 8))
    more = (f"domain.model.size={list(size)}", "domain.model.lora.rank=2", "optimiser.learning_rate=0.3")
    spacing = "scheduler" if name == "WanPipeline" else "uniform"
    run(experiment(tmp_path, name, model, *more, f"domain.spacing={spacing}"), tmp_path / "run")
    with trained(tmp_path / "run", None, "final") as loaded:
        domain = open_domain(loaded)
    noise = torch.randn(2, *domain.denoiser.latent_shape, generator=torch.Generator().manual_seed(1))
    here = ode(domain.denoiser, noise, prompts(name), 2.0)
    with domain.module.disable_adapter():
        assert float((ode(domain.denoiser, noise, prompts(name), 2.0) - here).abs().max()) > 1e-3
    pipe = diffusers.DiffusionPipeline.from_pretrained(model)
    pipe.set_progress_bar_config(disable=True)
    pipe.load_lora_weights(tmp_path / "run" / "model")
    assert domain.denoiser.schedule(NUM_STEPS).num_steps == NUM_STEPS
    assert float((by_the_pipeline(pipe, name, noise, prompts(name), 2.0) - here).abs().max()) < 2e-5
    domain.close()


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("domain.model.lora.rank=2",)], ids=["whole", "adapter"])
def test_a_finished_run_is_opened_again_as_it_ended(more: tuple[str, ...], tmp_path: Path) -> None:
    name = "StableDiffusion3Pipeline"
    result = run(experiment(tmp_path, name, saved(name, tmp_path / "base"), *more), tmp_path / "run")
    with trained(tmp_path / "run", None, "final") as loaded:
        domain = open_domain(loaded)
    assert domain.evaluate(streams=Streams(0)).metrics["ode/small"] == pytest.approx(result.summary["after"])
    domain.close()


@pytest.mark.nightly
def test_an_adapter_its_average_and_a_mixed_reference_resume_to_the_bit(tmp_path: Path) -> None:
    name = "StableDiffusionPipeline"
    model = saved(name, tmp_path / "base")
    more = (
        "domain.model.lora.rank=2",
        "train.weight_average.decay=0.5",
        "method=source_002",
        "reference.kind=periodic",
        "reference.sync_steps=2",
    )
    chosen = experiment(tmp_path, name, model, *more, "train.num_steps=4", "checkpoint.every=1")
    run(chosen, tmp_path / "whole")
    # The same run, with everything after its second step lost.
    run(chosen, tmp_path / "cut")
    for folder in (tmp_path / "cut" / "checkpoints").iterdir():
        if folder.name != "step-2":
            shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "cut" / "model")
    # What ended is not begun again: a run that was cut has no summary.
    (tmp_path / "cut" / "summary.json").unlink()
    resume(tmp_path / "cut")
    weights = [load_file(tmp_path / each / "model" / "pytorch_lora_weights.safetensors") for each in ("whole", "cut")]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(value, weights[1][key]) for key, value in weights[0].items())
    rows = [row for row in read_metrics(tmp_path / "whole" / "metrics.jsonl") if "reference/mixed" in row]
    assert [row["reference/mixed"] for row in rows] == [0.0, 1.0, 0.0, 1.0]
    assert [row["reference/steps_since_mixed"] for row in rows] == [1, 0, 1, 0]


def test_prompts_choose_the_twin_whose_reward_suits_them(tmp_path: Path) -> None:
    chosen = load("diffusion", [], model="folder", prompts="prompts.txt")
    assert (chosen.name, chosen.stages, list(chosen.domain.rewards)) == ("diffusion_prompts", (), ["small"])
    assert chosen.domain.data.source.path == "prompts.txt"
    assert load("source_002", [], model="folder", prompts="prompts.txt").name == "source_002"
    assert job_of(chosen).recipes[0].name == "diffusion_prompts"
