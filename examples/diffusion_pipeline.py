"""A pipeline of diffusers, a function over its pictures, and a folder that diffusers loads again.

    pip install '.[diffusion]'
    python examples/diffusion_pipeline.py PIPELINE_FOLDER OUT

Any of Stable Diffusion 1 to 3.5, SDXL, Flux and DiT. Large ones want `domain.model.lora.rank=32` beside it.
"""

import sys
from typing import Any

import groupwise

PROMPTS = ["a cat at night", "a dog at night", "a street at night", "a boat at night"]


def dark(completions: list[Any], **columns: Any) -> list[float]:
    """Returns how dark each picture is, between 0 and 1; a picture is a `uint8` tensor `[H, W, 3]`."""
    return [1 - float(picture.float().mean()) / 255 for picture in completions]


def train(pipeline: str, out: str, **changes: Any) -> dict[str, Any]:
    """Trains the denoiser and returns the run's summary."""
    settings = {
        "domain.model.path": pipeline,
        "domain.data.source": {"kind": "texts", "prompts": PROMPTS},
        "train.num_steps": 10,
        "train.prompts_per_step": 4,
        **changes,
    }
    return groupwise.train("diffusion_prompts", rewards=dark, out=out, **settings).summary


if __name__ == "__main__":
    print(train(sys.argv[1], sys.argv[2]))
