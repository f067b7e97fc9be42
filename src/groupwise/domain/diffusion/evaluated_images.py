"""Draws the images of an evaluation, a pass at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from groupwise.domain.diffusion.config import DiffusionConfig
from groupwise.domain.diffusion.encoded_prompts import PromptConditions
from groupwise.domain.diffusion.path import draw, noise_of
from groupwise.domain.diffusion.scorer import Scorer
from groupwise.domain.joined_rows import joined
from groupwise.domain.pass_sizes import PassSizes
from groupwise.domain.protocol import Prompt
from groupwise.streams import Streams


def evaluated_images(
    config: DiffusionConfig,
    scorer: Scorer,
    prompts: Sequence[Prompt],
    conditions: PromptConditions,
    passes: PassSizes,
    decode: Callable[[Tensor], Tensor],
) -> Tensor:
    """Draws `num_images` images of each prompt, uint8 `[P num_images, H, W(, 3)]` on the CPU; an image's noise is its
    own, the same in every evaluation.

    Args:
        config: of the domain.
        scorer: draws.
        conditions: of the prompts.
        passes: images in a pass.
        decode: makes pictures of latents.
    """
    evaluation, denoiser = config.evaluation, scorer.denoiser
    streams, schedule = Streams(evaluation.seed), denoiser.schedule(evaluation.num_steps or config.num_steps)
    num = schedule.num_steps - 1 if evaluation.sampler.stochastic else 0
    keys = [(place, number) for place in range(len(prompts)) for number in range(evaluation.num_images)]

    def images_of(rows: Tensor) -> Tensor:
        chosen = [keys[row] for row in rows.tolist()]
        noise = torch.stack(
            [noise_of(denoiser, streams, num + 1, "evaluate", prompts[place].key, number) for place, number in chosen]
        ).to(denoiser.device)
        drawn = draw(
            denoiser,
            schedule,
            evaluation.sampler,
            noise[:, 0],
            noise[:, 1:],
            conditions.select(torch.tensor([place for place, _ in chosen], device=denoiser.device)),
            guidance=config.guidance if evaluation.guidance is None else evaluation.guidance,
            first=0,
            reduce="mean",
            requires=frozenset({"log_prob"}),
        )
        return decode(drawn.latents)

    return joined(scorer.draw(passes, images_of, torch.arange(len(keys))), len(keys))
