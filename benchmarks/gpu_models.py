"""Models of published shapes with random weights, and the ten steps that `gpu.py` trains them for: nothing is
downloaded, and their tokenizers are made here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import vllm_on_cpu

Shape = dict[str, Any]

LANGUAGE: dict[str, dict[str, Any]] = {
    "qwen_lora": {"size": "0.5b", "model": {"dtype": "bfloat16", "lora": {"r": 16, "alpha": 32}}},
    "qwen_full": {"size": "0.5b", "model": {"dtype": "bfloat16"}},
    "qwen_autocast": {"size": "0.5b", "model": {"dtype": "float32"}, "autocast": "bfloat16"},
    "qwen_shards": {"size": "0.5b", "model": {"dtype": "bfloat16"}, "sharding": "full"},
    "qwen_vllm": {"size": "0.5b", "model": {"dtype": "bfloat16"}, "served": True},
    "qwen_7b": {"size": "7b", "model": {"dtype": "bfloat16", "lora": {"r": 16, "alpha": 32}}},
}
"""Language models: which size, what of it is trained, in which precision, and whether a vLLM server samples."""

IMAGES: dict[str, dict[str, Any]] = {
    "unet_512": {"pipeline": "unet", "model": {"dtype": "float32"}, "autocast": "bfloat16"},
    "flow_1b": {"pipeline": "flow", "model": {"dtype": "bfloat16", "lora": {"rank": 16}}},
}
"""Models of images of 512 x 512 pixels: Stable Diffusion's UNet, and a flow transformer of a billion weights."""


def qwen_shape(tiny: bool, size: str = "0.5b") -> Shape:
    """Qwen2.5-0.5B's or -7B's configuration, or its family in small."""
    if tiny:
        return {
            "vocab_size": 320,
            # vLLM's attention on a CPU wants heads of 32 at least.
            "hidden_size": 64,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "tie_word_embeddings": size == "0.5b",
        }
    common = {"max_position_embeddings": 32768, "rope_theta": 1e6, "rms_norm_eps": 1e-6}
    if size == "7b":
        return {
            "vocab_size": 152064,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "tie_word_embeddings": False,
            **common,
        }
    return {
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
        **common,
    }


def made_once(folder: Path, write: Callable[[Path], None]) -> Path:
    """Returns a folder, which is written whole or not at all."""
    if not folder.is_dir():
        partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
        write(partial)
        partial.rename(folder)
    return folder


def save_qwen(folder: Path, tiny: bool, size: str = "0.5b", device: str = "cpu") -> Path:
    """A model folder of that shape with random weights in bfloat16, whose tokenizer knows bytes and nothing more."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

    def write(partial: Path) -> None:
        end = "<|endoftext|>"
        bytes_of_text = {character: row for row, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
        tokenizer = Qwen2Tokenizer(
            vocab={**bytes_of_text, end: 256}, merges=[], unk_token=end, eos_token=end, pad_token=end
        )
        config = Qwen2Config(**qwen_shape(tiny, size), pad_token_id=256, eos_token_id=256, bos_token_id=None)
        torch.manual_seed(0)
        # Billions of weights are drawn where that takes a second.
        with torch.device(device):
            model = Qwen2ForCausalLM._from_config(config, dtype=torch.bfloat16)
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)

    return made_once(folder, write)


def language_experiment(name: str, folder: Path, device: str, tiny: bool) -> dict[str, Any]:
    """Ten steps of 8 groups of 8 (7B: 4 groups), 128 tokens after 128, with a KL to a reference so that there is
    something to score.
    """
    settings = LANGUAGE[name]
    large = settings["size"] == "7b"
    size = (
        {"prompts": 2, "group": 2, "prompt": 4, "new": 4, "steps": 3}
        if tiny
        else {"prompts": 4 if large else 8, "group": 8, "prompt": 128, "new": 128, "steps": 10}
    )
    model = save_qwen(folder / f"model-{settings['size']}", tiny, settings["size"], device)
    # A token a letter; the first two tell the prompts apart.
    texts = [f"{text:02d}" + "a" * (size["prompt"] - 2) for text in range(4 * size["prompts"])]
    return {
        "name": name,
        "method": "grpo",
        "domain": {
            "kind": "language",
            "model": {"kind": "pretrained", "path": str(model), **settings["model"]},
            "data": {"source": {"kind": "texts", "prompts": texts}, "num_held_out": 1},
            "rewards": {"differs": {"kind": "callable", "path": "benchmarks.differs:differs"}},
            "sampling": {"max_new_tokens": size["new"]},
            "evaluation": {"sampled": False},
            **({"engine": vllm_engine(device)} if settings.get("served") else {}),
        },
        "train": {
            "num_steps": size["steps"],
            "prompts_per_step": size["prompts"],
            "group_size": size["group"],
            "device": device,
            # On a GPU the size of a pass is found by measuring what is free.
            "micro_batch_members": "auto",
            "autocast": settings.get("autocast", "none"),
            "sharding": settings.get("sharding", "none"),
            **({"memory_limit_gib": 64.0} if device == "cpu" else {}),
        },
        "optimiser": {"learning_rate": 1e-5},
        "checkpoint": {"every": 10**6},
        "track": {"console": "none"},
    }


def vllm_engine(device: str) -> dict[str, Any]:
    """A server that the run starts on its own device, which it gives back while the policy is scored and trained; vLLM
    on a CPU cannot sleep.
    """
    arguments = ["--gpu-memory-utilization=0.5"] if device == "cuda" else vllm_on_cpu.ARGUMENTS
    return {
        "kind": "vllm",
        "start": True,
        "sleep": device == "cuda",
        "arguments": [*arguments, "--max-model-len=1024"],
    }


LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WORDS = ("a", "cat", "and", "the", "dog", "in", "rain", "on", "snow", "by", "sea")


def clip_tokenizer() -> Any:
    """CLIP's tokenizer for letters: every letter is a token, 77 of them at most."""
    from transformers import CLIPTokenizer

    words = ["<|startoftext|>", "<|endoftext|>", *LETTERS, *(f"{letter}</w>" for letter in LETTERS)]
    return CLIPTokenizer(
        vocab={word: number for number, word in enumerate(words)}, merges=[], model_max_length=77, pad_token=words[1]
    )


def clip_text(width: int, projected: bool) -> Any:
    """A text encoder of a published width and two layers: what is measured is the denoiser."""
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig(
        vocab_size=128,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=max(1, width // 64),
        max_position_embeddings=77,
        projection_dim=width,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return (CLIPTextModelWithProjection if projected else CLIPTextModel)(config)


def autoencoder(channels: int, tiny: bool, **more: Any) -> Any:
    """Stable Diffusion's autoencoder, which makes eight times fewer pixels of an image."""
    from diffusers import AutoencoderKL

    widths = (8, 8, 8, 8) if tiny else (128, 256, 512, 512)
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=widths,
        layers_per_block=1 if tiny else 2,
        norm_num_groups=2 if tiny else 32,
        latent_channels=channels,
        sample_size=512,
        **more,
    )


def unet(tiny: bool) -> Any:
    """Stable Diffusion 1.5's pipeline: a UNet of 860 million weights. diffusers' own defaults are its shape."""
    from diffusers import DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel

    width = 64 if tiny else 768
    small = {"block_out_channels": (8, 8, 8, 8), "layers_per_block": 1, "norm_num_groups": 2, "attention_head_dim": 2}
    scheduler = DDIMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        clip_sample=False,
        set_alpha_to_one=False,
        steps_offset=1,
    )
    return StableDiffusionPipeline(
        vae=autoencoder(4, tiny),
        text_encoder=clip_text(width, projected=False),
        tokenizer=clip_tokenizer(),
        unet=UNet2DConditionModel(
            sample_size=8 if tiny else 64, cross_attention_dim=width, **(small if tiny else {"attention_head_dim": 8})
        ),
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def flow(tiny: bool) -> Any:
    """A pipeline of Stable Diffusion 3 whose transformer has twelve layers: a billion weights."""
    from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline
    from transformers import T5Config, T5EncoderModel, T5TokenizerFast

    first, second = (64, 64) if tiny else (768, 1280)
    width = first + second if tiny else 4096
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *((letter, -3.0) for letter in LETTERS)]
    heads = 2 if tiny else 24
    transformer = SD3Transformer2DModel(
        sample_size=8 if tiny else 64,
        patch_size=2,
        in_channels=16,
        num_layers=1 if tiny else 12,
        attention_head_dim=64,
        num_attention_heads=heads,
        joint_attention_dim=width,
        caption_projection_dim=64 * heads,
        pooled_projection_dim=first + second,
        out_channels=16,
        pos_embed_max_size=96,
    )
    return StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=autoencoder(16, tiny, shift_factor=0.0609, scaling_factor=1.5305),
        text_encoder=clip_text(first, projected=True),
        tokenizer=clip_tokenizer(),
        text_encoder_2=clip_text(second, projected=True),
        tokenizer_2=clip_tokenizer(),
        text_encoder_3=T5EncoderModel(
            T5Config(vocab_size=64, d_model=width, d_kv=64, d_ff=width, num_layers=1, num_heads=2, dropout_rate=0.0)
        ),
        tokenizer_3=T5TokenizerFast(vocab=pieces, extra_ids=0, model_max_length=256),
    )


def save_pipeline(folder: Path, kind: str, tiny: bool) -> Path:
    """A pipeline's folder with random weights in bfloat16."""
    import torch

    def write(partial: Path) -> None:
        torch.manual_seed(0)
        pipe = {"unet": unet, "flow": flow}[kind](tiny)
        pipe.to(dtype=torch.bfloat16).save_pretrained(partial, safe_serialization=True)

    return made_once(folder, write)


def image_experiment(name: str, folder: Path, device: str, tiny: bool) -> dict[str, Any]:
    """Ten steps of 2 groups of 4 images of 512 x 512 pixels, five transitions each, guided."""
    settings = IMAGES[name]
    model = save_pipeline(folder / f"pipeline-{settings['pipeline']}", settings["pipeline"], tiny)
    prompts = folder / f"{name}-prompts.txt"
    prompts.write_text("".join(f"{first} {second}\n" for first in WORDS for second in WORDS[:2]))
    return {
        "name": name,
        "method": "flow_grpo",
        "domain": {
            "kind": "diffusion",
            "model": {"kind": "pretrained", "path": str(model), **settings["model"]},
            "data": {"source": {"kind": "prompts", "path": str(prompts)}},
            "num_steps": 3 if tiny else 5,
            "guidance": 4.0,
            "sampler": {"kind": "auto"},
            "rewards": {"small": {"kind": "jpeg_size"}},
            "evaluation": {"num_prompts": 2, "num_images": 1, "num_columns": 1},
        },
        "train": {
            "num_steps": 3 if tiny else 10,
            "prompts_per_step": 2,
            "group_size": 2 if tiny else 4,
            "device": device,
            "autocast": settings.get("autocast", "none"),
        },
        "optimiser": {"learning_rate": 1e-5},
        "checkpoint": {"every": 10**6},
        "track": {"console": "none"},
    }
