"""What a step of an image model costs: counted without weights, equal to what a pass here holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.images.diffusion import small
from tests.images.diffusion.models.tiny import PIPELINES, saved
from tests.images.restoration import small as small_restoration

from groupwise.cli.estimate_images import estimate_span
from groupwise.config import ConfigError, validate
from groupwise.domain.costs import ImageCosts, PassCost
from groupwise.domain.pass_sizes import CPU_BYTES, MOST_ROWS
from groupwise.estimate.images import ImageStep, estimate_images
from groupwise.estimate.machine import GPUS
from groupwise.experiment import load_experiment
from groupwise.memory import peak_bytes
from groupwise.streams import Streams
from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.models.open import open_denoiser

CPU = torch.device("cpu")
COSTS = ImageCosts(
    name="UNet",
    parameters=10,
    trained=10,
    weight_bytes=40.0,
    frozen_bytes=100.0,
    trained_bytes=40.0,
    forward=PassCost(2.0, 2.0**20, 0.0, seconds=0.5),
    update=PassCost(6.0, 2.0**23, 2.0**23, seconds=2.0),
    decode=PassCost(4.0, 2.0**22, 0.0),
    rows_of_model=2,
    sampled_a_prompt=0,
    sampled_a_member=10,
    updated_a_prompt=0,
    updated_a_member=9,
    member_bytes=32.0,
    stated_rows=None,
    is_counted=True,
)


def config(name: str, folder: Path) -> DiffusionConfig:
    classes = name == "DiTPipeline"
    size = {} if classes else {"size": [32, 32]}
    table = {
        "kind": "diffusion",
        "model": {"kind": "pretrained", "path": str(folder), **size},
        "data": {"source": {"kind": "texts", "prompts": ["class 3" if classes else "a cat"]}},
        "rewards": {"small": {"kind": "jpeg_size"}},
        "guidance": 2.0,
    }
    return validate(DiffusionConfig, table)


def test_a_text_encoder_that_computes_with_values_is_refused_in_one_line(tmp_path: Path) -> None:
    settings = config("QwenImagePipeline", saved("QwenImagePipeline", tmp_path / "base"))
    with pytest.raises(ConfigError, match=r"the text encoder of a QwenImagePipeline .* cannot be counted"):
        settings.image_costs(streams=Streams(0), copies=0, checkpointing=False, time=False)


# The text encoder of Qwen cannot be counted.
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PIPELINES if name != "QwenImagePipeline"])
def test_bytes_counted_without_weights_are_what_a_pass_holds(name: str, tmp_path: Path) -> None:
    settings = config(name, saved(name, tmp_path / "base"))
    costs = settings.image_costs(streams=Streams(0), copies=0, checkpointing=False, time=False)
    denoiser: Any = open_denoiser(settings, Streams(0), CPU)
    condition = denoiser.encode([{"prompt": "class 3" if name == "DiTPipeline" else "a cat"}])
    guidance = 1.0 if condition.unconditional is None else 2.0

    def predict(rows: int) -> torch.Tensor:
        return denoiser.predict(
            torch.zeros(rows, *denoiser.latent_shape),
            torch.zeros(rows),
            condition.select(torch.zeros(rows, dtype=torch.long)),
            guidance,
        )

    def differentiate(rows: int) -> None:
        torch.autograd.grad(predict(rows).sum(), list(denoiser.module.parameters()), allow_unused=True)

    def decode(rows: int) -> None:
        denoiser.decode(torch.zeros(rows, *denoiser.latent_shape))

    assert costs.parameters == sum(parameter.numel() for parameter in denoiser.module.parameters())
    assert costs.decode is not None
    runs: list[tuple[PassCost, Any]] = [
        (costs.forward, torch.no_grad()(predict)),
        (costs.update, differentiate),
        (costs.decode, decode),
    ]
    for cost, run in runs:
        run(1)
        for rows in (1, 8):
            # Another kernel of attention may hold a little more.
            assert cost.bytes(rows) == pytest.approx(peak_bytes(lambda rows=rows, run=run: run(rows), CPU), rel=0.2)
    assert 2 * costs.forward.flops < costs.update.flops < 4 * costs.forward.flops


def test_a_network_that_restores_is_counted_on_its_own_images() -> None:
    costs = small_restoration.config().image_costs(streams=Streams(0), copies=0, checkpointing=False, time=True)
    assert costs.name == "ResidualStack, images of 8 x 8 pixels"
    assert (costs.sampled_a_prompt, costs.sampled_a_member) == (1, 0)
    assert costs.forward.seconds is not None
    assert costs.forward.seconds > 0
    gated = small_restoration.config(None, small_restoration.GATED)
    assert gated.image_costs(streams=Streams(0), copies=0, checkpointing=False, time=False).sampled_a_member == 1


def test_rows_operations_and_seconds_of_each_part() -> None:
    step = ImageStep(prompts=4, group_size=8, updates=2, reference=True, copy_of_reference=True)
    estimated = estimate_images(COSTS, step)
    assert estimated.flops == {"sampling": 640.0, "decoding": 128.0, "scoring": 576.0, "update": 3456.0}
    assert estimated.seconds == {"sampling": 160.0, "decoding": 32.0, "scoring": 144.0, "update": 1152.0}
    assert estimated.rows == {"sampling": 32, "decoding": 32, "scoring": 32, "update": 15}
    assert estimated.bytes["a pass of update"] == CPU_BYTES
    assert estimated.bytes["peak"] == 40 + 100 + 40 + 80 + 40 + 32 * 32 + CPU_BYTES


def test_images_are_decoded_while_the_graph_of_sampling_waits_for_its_update() -> None:
    step = ImageStep(prompts=1, group_size=1)
    waiting = replace(COSTS, keeps_graph=True)
    plain, kept = (estimate_images(costs, step).bytes for costs in (COSTS, waiting))
    assert kept["peak"] == plain["peak"] + plain["a pass of decoding"]
    # Where the update takes several passes, no graph is kept.
    many = ImageStep(prompts=4, group_size=8)
    assert estimate_images(waiting, many).bytes == estimate_images(COSTS, many).bytes


@pytest.mark.slow
def test_an_adapter_of_single_precision_leaves_the_products_in_half_precision(tmp_path: Path) -> None:
    shape = {"name": "half", "method": "flow_grpo", "train": {"num_steps": 1, "prompts_per_step": 1, "group_size": 2}}
    saved("StableDiffusion3Pipeline", tmp_path / "model")
    (tmp_path / "prompts.txt").write_text("a\nb\n")
    domain: dict[str, Any] = {"kind": "diffusion", "num_steps": 3, "rewards": {"small": {"kind": "jpeg_size"}}}
    domain["data"] = {"source": {"kind": "prompts", "path": str(tmp_path / "prompts.txt")}}

    def seconds(**model: object) -> float:
        domain["model"] = {"kind": "pretrained", "path": str(tmp_path / "model"), **model}
        (tmp_path / "half.json").write_text(json.dumps({**shape, "domain": domain}))
        experiment = load_experiment(tmp_path / "half.json", run_code=True)
        return estimate_span(experiment, "half", gpu="H100", gpus=1)[2].seconds["sampling"]

    assert seconds(dtype="bfloat16") < 0.1 * seconds(dtype="float32")
    # The adapter's own products add a half at this width.
    assert seconds(dtype="bfloat16", lora={"rank": 1}) < 0.2 * seconds(dtype="float32", lora={"rank": 1})


def test_a_pass_holds_the_same_with_ten_prompts_and_with_a_thousand() -> None:
    few, many = (estimate_images(COSTS, ImageStep(prompts=prompts, group_size=8)) for prompts in (10, 1000))
    for name in few.bytes:
        if name.startswith("a pass of"):
            assert few.bytes[name] == many.bytes[name]
    assert many.rows["sampling"] == MOST_ROWS // 2


def test_a_gpu_bounds_passes_by_half_of_what_is_free_and_computes_by_its_peaks() -> None:
    gpu = GPUS["H100"]
    estimated = estimate_images(COSTS, ImageStep(prompts=1000, group_size=8), gpu=gpu, half=True)
    assert 0.4 * gpu.memory < estimated.bytes["a pass of update"] <= 0.5 * gpu.memory
    assert estimated.seconds["sampling"] == pytest.approx(160_000 / (0.3 * gpu.bf16))
    halved = estimate_images(COSTS, ImageStep(prompts=1000, group_size=8), gpu=gpu, half=True, num_processes=2)
    assert halved.flops["update"] == estimated.flops["update"] / 2


def test_noised_copies_are_the_rows_of_an_update() -> None:
    costs = small.config().image_costs(streams=Streams(0), copies=5, checkpointing=False, time=False)
    assert costs.updated_a_member == 5
