from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.images.diffusion.small import EVERYTHING, TABLE, domain, sampled

from groupwise.config import ConfigError, validate
from groupwise.streams import Streams
from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.domain import DiffusionDomain
from groupwise_images.diffusion.models.bare import open_bare

UNET = {
    "name": "UNet2DModel",
    "dtype": "float32",
    "shape": {
        "sample_size": 8,
        "patch_size": None,
        "in_channels": 1,
        "out_channels": 1,
        "block_out_channels": [8, 16],
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "down_block_types": ["DownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "UpBlock2D"],
        "add_attention": False,
    },
}


def unet(**shape: Any) -> Any:
    model = {
        "kind": "scratch",
        "seed": 3,
        **UNET,
        "shape": {**{k: v for k, v in UNET["shape"].items() if v is not None}, **shape},
    }  # type: ignore[dict-item]
    return model


def open_unet(model: dict[str, Any], **changes: Any) -> Any:
    return DiffusionDomain(validate(DiffusionConfig, {**TABLE, "model": model, **changes}), streams=Streams(0))


def test_a_unet_with_classes_and_one_for_none() -> None:
    given = open_unet(unet(num_class_embeds=11), guidance=2.0)
    samples = sampled(given)
    assert torch.allclose(given.score(samples, torch.arange(6), EVERYTHING).log_prob, samples.old_log_prob, atol=1e-4)
    assert given.denoiser.encode([{"label": 4}]).unconditional["label"].tolist() == [10]


def test_a_unet_without_classes_is_asked_for_nothing() -> None:
    given = open_unet(unet(), demonstrations=None)
    samples = sampled(given)
    assert torch.allclose(given.score(samples, torch.arange(6), EVERYTHING).log_prob, samples.old_log_prob, atol=1e-4)
    with pytest.raises(ConfigError, match="no unconditional branch"):
        open_unet(unet(), guidance=2.0)


def test_half_precision_weights_score_in_fp32() -> None:
    given = domain({"model": {"dtype": "bfloat16"}})
    samples = sampled(given)
    assert samples.payload["visited"].dtype == samples.old_log_prob.dtype == torch.float32
    assert next(given.module.parameters()).dtype == torch.bfloat16
    # Matrix products of another batch size round differently in bfloat16; the density around a mean that is off by 1e-3
    # is what differs.
    assert torch.allclose(given.score(samples, torch.arange(6), EVERYTHING).log_prob, samples.old_log_prob, atol=5e-2)


@pytest.mark.parametrize("missing", ["transformer", "scheduler"])
def test_a_folder_without_a_part_is_refused(tmp_path: Path, missing: str) -> None:
    domain().save(tmp_path)
    (tmp_path / missing).rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="transformer/ or unet/, and scheduler/"):
        open_bare(tmp_path, "auto", "uniform", torch.device("cpu"))


def test_a_folder_is_opened_in_the_dtype_it_was_saved_in(tmp_path: Path) -> None:
    for dtype in ("bfloat16", "float64"):
        domain({"model": {"dtype": dtype}}).save(tmp_path / dtype)
        assert next(
            open_bare(tmp_path / dtype, "auto", "uniform", torch.device("cpu")).module.parameters()
        ).dtype == getattr(torch, dtype)
    file = next((tmp_path / "bfloat16" / "transformer").glob("*.safetensors"))
    file.rename(file.with_name("diffusion_pytorch_model.half.safetensors"))
    assert (
        next(open_bare(tmp_path / "bfloat16", "auto", "uniform", torch.device("cpu"), "half").module.parameters()).dtype
        == torch.bfloat16
    )
    next((tmp_path / "float64" / "transformer").glob("*.safetensors")).write_bytes(b"broken")
    with pytest.raises(
        ConfigError, match="cannot be loaded as DiTTransformer2DModel with FlowMatchEulerDiscreteScheduler"
    ):
        open_bare(tmp_path / "float64", "auto", "uniform", torch.device("cpu"))


def test_a_quantised_denoiser_is_refused_before_it_is_read(tmp_path: Path) -> None:
    domain().save(tmp_path)
    file = tmp_path / "transformer" / "config.json"
    settings = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantization_config": settings}))
    with pytest.raises(ConfigError, match=r": transformer: its weights are quantised \(bitsandbytes\)"):
        open_unet({"kind": "pretrained", "path": str(tmp_path)})


def test_a_denoiser_alone_takes_no_adapter_and_has_one_size(tmp_path: Path) -> None:
    domain().save(tmp_path)
    for key, value in (("lora", {"rank": 2}), ("size", [16, 16])):
        with pytest.raises(ConfigError, match=f"model.{key}: .* holds a denoiser without a pipeline"):
            open_unet({"kind": "pretrained", "path": str(tmp_path), key: value})


def test_a_class_that_needs_a_pipeline_is_refused(tmp_path: Path) -> None:
    domain().save(tmp_path)
    file = tmp_path / "transformer" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "_class_name": "SD3Transformer2DModel"}))
    with pytest.raises(ConfigError, match="holds a SD3Transformer2DModel"):
        open_bare(tmp_path, "auto", "uniform", torch.device("cpu"))
