"""Supervised learning where prompts are images: pairs of a degraded image and its target."""

from __future__ import annotations

import torch

from groupwise.domain.diffusion.config import DemonstrationsConfig
from groupwise.domain.diffusion.denoiser import Denoiser
from groupwise.domain.diffusion.image_prompts import ImagePrompts
from groupwise.domain.diffusion.supervised import demonstrations
from groupwise.domain.protocol import Samples
from groupwise.streams import Streams


def image_demonstrations(
    config: DemonstrationsConfig, pictures: ImagePrompts, denoiser: Denoiser, size: int, streams: Streams, step: int
) -> Samples | None:
    """Draws up to `size` pairs without replacement within the step, degraded for it; None where no image has a target.

    Args:
        config: how times are drawn, and how many lose their prompt.
        pictures: the training images.
        denoiser: makes latents of the targets.
        size: pairs at most.
        streams, step: keys of the draws.
    """
    if not pictures.demonstrated:
        return None
    size = min(size, len(pictures.demonstrated))
    places = streams.numpy("demonstrations", step).choice(len(pictures.demonstrated), size=size, replace=False)
    chosen = [pictures.demonstrated[place] for place in places.tolist()]
    # Streams of their own: what is sampled in the same step is degraded otherwise.
    prompts = pictures.shown(chosen, Streams(streams.seed("demonstrations")), step)
    latents = denoiser.to_latents(torch.from_numpy(pictures.targets(chosen)))
    return demonstrations(config, latents, prompts, range(size), prompts, streams, step)
