"""Every pipeline of diffusers that can be trained, with random weights and tokenizers made here: a few thousand
parameters each, whole on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from tests.tiny_clip import ALPHABET, clip_tokenizer
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Tokenizer,
    T5Config,
    T5EncoderModel,
    T5TokenizerFast,
    UMT5Config,
    UMT5EncoderModel,
)

PIPELINES = (
    "StableDiffusionPipeline",
    "StableDiffusionXLPipeline",
    "DiTPipeline",
    "StableDiffusion3Pipeline",
    "FluxPipeline",
    "QwenImagePipeline",
)
"""Those that make images."""
ALL_PIPELINES = (*PIPELINES, "WanPipeline")
ASKED_BY_IMAGE = "StableDiffusionInstructPix2PixPipeline"
AT_ONCE = "StableDiffusion3Pipeline"
"""The pipeline that every run of the tests tries; the slow tests try the others."""


def others_slow(names: Sequence[str]) -> list[Any]:
    """The names as parameters of a test, slow but for the one that is tried at once."""
    return [name if name == AT_ONCE else pytest.param(name, marks=pytest.mark.slow) for name in names]


WITH_ADAPTERS = tuple(name for name in ALL_PIPELINES if name != "DiTPipeline")


def build(name: str, **changes: Any) -> Any:
    """A pipeline by the name of its class; `changes` go to its denoiser."""
    torch.manual_seed(0)
    pipe = {
        "StableDiffusionPipeline": stable_diffusion,
        "StableDiffusionXLPipeline": stable_diffusion_xl,
        "DiTPipeline": dit,
        "StableDiffusion3Pipeline": stable_diffusion_3,
        "FluxPipeline": flux,
        "QwenImagePipeline": qwen_image,
        "WanPipeline": wan,
        ASKED_BY_IMAGE: instruct_pix2pix,
    }[name](**changes)
    pipe.set_progress_bar_config(disable=True)
    denoiser = pipe.unet if hasattr(pipe, "unet") else pipe.transformer
    # Fresh transformers give zero (their last layer starts there), and fresh UNets hardly look at the text.
    with torch.no_grad():
        for parameter in denoiser.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.15)
    return pipe


def saved(name: str, folder: Path, **changes: Any) -> Path:
    """The folder of a pipeline."""
    build(name, **changes).save_pretrained(folder, safe_serialization=True)
    return folder


def autoencoder(channels: int = 4, **more: Any) -> Any:
    return diffusers.AutoencoderKL(
        block_out_channels=(4, 4),
        norm_num_groups=2,
        latent_channels=channels,
        sample_size=16,
        layers_per_block=1,
        **two_blocks("DownEncoderBlock2D", "UpDecoderBlock2D"),
        **more,
    )


def two_blocks(down: str, up: str) -> dict[str, Any]:
    return {"down_block_types": (down, down), "up_block_types": (up, up)}


def text_encoder(projected: bool = False, width: int = 8) -> Any:
    config = CLIPTextConfig(
        vocab_size=len(clip_tokenizer()),
        hidden_size=width,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=16,
        projection_dim=width,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        initializer_range=0.5,
    )
    return (CLIPTextModelWithProjection if projected else CLIPTextModel)(config)


def t5_tokenizer() -> Any:
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *((letter, -3.0) for letter in ALPHABET)]
    return T5TokenizerFast(vocab=pieces, extra_ids=0, model_max_length=16)


def t5_encoder(width: int = 8) -> Any:
    return T5EncoderModel(
        T5Config(
            vocab_size=64,
            d_model=width,
            d_kv=4,
            d_ff=8,
            num_layers=1,
            num_heads=2,
            initializer_factor=4.0,
            dropout_rate=0.0,
        )
    )


def ddim() -> Any:
    return diffusers.DDIMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        clip_sample=False,
        set_alpha_to_one=False,
        steps_offset=1,
    )


def unet(**changes: Any) -> Any:
    shape: dict[str, Any] = {
        "sample_size": 4,
        "block_out_channels": (4, 8),
        "norm_num_groups": 2,
        "layers_per_block": 1,
        "attention_head_dim": 4,
        "cross_attention_dim": 8,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    }
    return diffusers.UNet2DConditionModel(**(shape | changes))


def stable_diffusion(**changes: Any) -> Any:
    return diffusers.StableDiffusionPipeline(
        vae=autoencoder(),
        text_encoder=text_encoder(),
        tokenizer=clip_tokenizer(),
        unet=unet(**changes),
        scheduler=ddim(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def stable_diffusion_xl(**changes: Any) -> Any:
    shape = {
        "cross_attention_dim": 16,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 4,
        "projection_class_embeddings_input_dim": 32,
    }
    return diffusers.StableDiffusionXLPipeline(
        vae=autoencoder(),
        text_encoder=text_encoder(),
        text_encoder_2=text_encoder(projected=True),
        tokenizer=clip_tokenizer(),
        tokenizer_2=clip_tokenizer(),
        unet=unet(**(shape | changes)),
        scheduler=ddim(),
        add_watermarker=False,
    )


def dit(**changes: Any) -> Any:
    shape: dict[str, Any] = {
        "sample_size": 4,
        "num_layers": 1,
        "patch_size": 2,
        "attention_head_dim": 4,
        "num_attention_heads": 2,
        "in_channels": 4,
        "out_channels": 8,
        "attention_bias": True,
        "activation_fn": "gelu-approximate",
        "num_embeds_ada_norm": 1000,
        "norm_type": "ada_norm_zero",
        "norm_elementwise_affine": False,
    }
    names = {str(number): f"class {number}" for number in range(1000)}
    scheduler = diffusers.DDIMScheduler(clip_sample=False)
    model = diffusers.DiTTransformer2DModel(**(shape | changes))
    pipe = diffusers.DiTPipeline(transformer=model, vae=autoencoder(), scheduler=scheduler, id2label=names)
    # As the published folder has them.
    pipe.register_to_config(id2label=names)
    return pipe


def stable_diffusion_3(**changes: Any) -> Any:
    shape: dict[str, Any] = {
        "sample_size": 8,
        "patch_size": 2,
        "in_channels": 4,
        "num_layers": 1,
        "attention_head_dim": 4,
        "num_attention_heads": 2,
        "joint_attention_dim": 16,
        "caption_projection_dim": 8,
        "pooled_projection_dim": 16,
        "out_channels": 4,
        "pos_embed_max_size": 8,
    }
    return diffusers.StableDiffusion3Pipeline(
        transformer=diffusers.SD3Transformer2DModel(**(shape | changes)),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=autoencoder(shift_factor=0.1),
        text_encoder=text_encoder(projected=True),
        tokenizer=clip_tokenizer(),
        text_encoder_2=text_encoder(projected=True),
        tokenizer_2=clip_tokenizer(),
        text_encoder_3=t5_encoder(16),
        tokenizer_3=t5_tokenizer(),
    )


def flux(**changes: Any) -> Any:
    shape: dict[str, Any] = {
        "patch_size": 1,
        "in_channels": 16,
        "num_layers": 1,
        "num_single_layers": 1,
        "attention_head_dim": 8,
        "num_attention_heads": 2,
        "joint_attention_dim": 8,
        "pooled_projection_dim": 8,
        "axes_dims_rope": (2, 2, 4),
        "guidance_embeds": False,
    }
    pipe = diffusers.FluxPipeline(
        transformer=diffusers.FluxTransformer2DModel(**(shape | changes)),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15),
        vae=autoencoder(shift_factor=0.1),
        text_encoder=text_encoder(),
        tokenizer=clip_tokenizer(),
        text_encoder_2=t5_encoder(),
        tokenizer_2=t5_tokenizer(),
    )
    pipe.default_sample_size = 8
    return pipe


def qwen_tokenizer() -> Any:
    """A tokenizer in which every byte is a token."""
    words = [*sorted(ByteLevel.alphabet()), "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return Qwen2Tokenizer(vocab={word: number for number, word in enumerate(words)}, merges=[])


def qwen_text_encoder() -> Any:
    text = {
        "vocab_size": 260,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 1024,
        "initializer_range": 0.5,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
    }
    vision = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "out_hidden_size": 16}
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision))


def qwen_image(**changes: Any) -> Any:
    shape: dict[str, Any] = {
        "patch_size": 2,
        "in_channels": 16,
        "out_channels": 4,
        "num_layers": 1,
        "attention_head_dim": 8,
        "num_attention_heads": 2,
        "joint_attention_dim": 16,
        "axes_dims_rope": (2, 2, 4),
    }
    statistics = {"latents_mean": [0.1, -0.2, 0.3, 0.0], "latents_std": [1.5, 0.8, 1.2, 1.0]}
    return diffusers.QwenImagePipeline(
        transformer=diffusers.QwenImageTransformer2DModel(**(shape | changes)),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9, max_image_seq_len=8192, shift_terminal=0.02
        ),
        vae=diffusers.AutoencoderKLQwenImage(
            base_dim=4, z_dim=4, dim_mult=[1, 1], num_res_blocks=1, temperal_downsample=[False], **statistics
        ),
        text_encoder=qwen_text_encoder(),
        tokenizer=qwen_tokenizer(),
    )


def wan(**changes: Any) -> Any:
    shape: dict[str, Any] = {
        "in_channels": 4,
        "out_channels": 4,
        "num_layers": 1,
        "attention_head_dim": 8,
        "num_attention_heads": 2,
        "text_dim": 8,
        "freq_dim": 8,
        "ffn_dim": 16,
    }
    encoder = UMT5Config(
        vocab_size=64, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, initializer_factor=4.0, dropout_rate=0.0
    )
    statistics = {"latents_mean": [0.1, -0.2, 0.3, 0.0], "latents_std": [1.5, 0.8, 1.2, 1.0]}
    return diffusers.WanPipeline(
        transformer=diffusers.WanTransformer3DModel(**(shape | changes)),
        # As the published folders have it.
        scheduler=diffusers.UniPCMultistepScheduler(
            use_flow_sigmas=True, prediction_type="flow_prediction", flow_shift=3.0
        ),
        vae=diffusers.AutoencoderKLWan(
            base_dim=4,
            z_dim=4,
            dim_mult=[1, 1, 1],
            num_res_blocks=1,
            temperal_downsample=[True, True],
            scale_factor_spatial=4,
            **statistics,
        ),
        text_encoder=UMT5EncoderModel(encoder),
        tokenizer=t5_tokenizer(),
    )


def instruct_pix2pix(**changes: Any) -> Any:
    return diffusers.StableDiffusionInstructPix2PixPipeline(
        vae=autoencoder(),
        text_encoder=text_encoder(),
        tokenizer=clip_tokenizer(),
        unet=unet(**({"in_channels": 8} | changes)),
        scheduler=ddim(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
