"""Supervised learning from images: the loss of flow matching, or of predicting the noise, at times drawn for each
image.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from groupwise.domain.protocol import Prompt, Samples
from groupwise.streams import Streams
from groupwise_images.diffusion.config import DemonstrationsConfig
from groupwise_images.diffusion.denoiser import Condition, Denoiser
from groupwise_images.diffusion.image_prompts import ImagePrompts, PromptConditions
from groupwise_images.diffusion.transition import Parametrisation, over_images


def demonstrations(
    config: DemonstrationsConfig,
    latents: Tensor,
    image_prompts: Sequence[Prompt],
    places: Sequence[int],
    prompts: Sequence[Prompt],
    streams: Streams,
    step: int,
) -> Samples:
    """Makes a batch of images with their noise, time and prompt.

    Args:
        config: how times are drawn, and how many lose their prompt.
        latents: `[N, ...]` of all images.
        image_prompts: the prompt of each image.
        places: places of the batch's images.
        prompts: all prompts, which the samples refer to.
        streams, step: keys of the draws.

    Returns:
        Members whose mask is false everywhere; `auxiliary_count["supervised"]` is 1 each.
    """
    clean = latents[torch.tensor(list(places), device=latents.device)]
    generator = streams.generator("demonstration noise", step)
    size = len(places)
    noise = torch.randn(clean.shape, generator=generator, dtype=torch.float32).to(clean)
    times = torch.rand(size, generator=generator, dtype=torch.float64)
    if config.times == "logit_normal":
        times = torch.randn(size, generator=generator, dtype=torch.float64).sigmoid()
    dropped = torch.rand(size, generator=generator) < config.unconditional_share
    index_of = {prompt.key: index for index, prompt in enumerate(prompts)}
    mask = torch.zeros(size, 1, dtype=torch.bool, device=clean.device)
    return Samples(
        prompts=list(prompts),
        group=torch.tensor([index_of[image_prompts[place].key] for place in places], device=clean.device),
        mask=mask,
        old_log_prob=torch.zeros(size, 1, device=clean.device, dtype=clean.dtype),
        payload={"clean": clean, "noise": noise, "time": times.to(clean.device), "dropped": dropped.to(clean.device)},
        auxiliary_count={"supervised": torch.ones(size, dtype=torch.float64, device=clean.device)},
    )


def supervised_loss(denoiser: Denoiser, samples: Samples, condition: PromptConditions) -> Tensor:
    """Computes `mean (prediction - target)^2` over the elements of each member, `[B]`; the target is `e - x0` for a
    flow, `e`, `a e - b x0` or `x0` otherwise.

    Args:
        samples: the samples as `demonstrations` made them.
        condition: the condition of `samples.prompts`.

    Source: Lipman et al. 2022, arXiv 2210.02747, equation 23; Ho et al. 2020, arXiv 2006.11239, equation 14; Salimans
    and Ho 2022, arXiv 2202.00512 (v).
    """
    clean, noise, dropped = samples.payload["clean"], samples.payload["noise"], samples.payload["dropped"]
    timestep, signal, level = denoiser.noised(samples.payload["time"])
    a, b = over_images(signal, clean), over_images(level, clean)
    member_condition = condition.select(samples.group)
    if member_condition.unconditional is not None:
        tensors = {
            name: torch.where(dropped.view(-1, *[1] * (value.dim() - 1)), member_condition.unconditional[name], value)
            for name, value in member_condition.tensors.items()
        }
        member_condition = Condition(tensors, member_condition.unconditional)
    prediction = denoiser.predict(a * clean + b * noise, timestep.to(clean), member_condition, 1.0)
    target = target_of(denoiser.parametrisation, clean, noise, a, b)
    return (prediction - target).square().flatten(1).mean(1)


def target_of(parametrisation: Parametrisation, clean: Tensor, noise: Tensor, signal: Tensor, level: Tensor) -> Tensor:
    """Computes the target of a model's prediction on `signal x0 + level e`: `e - x0` for a flow, `e`, `a e - b x0` or
    `x0` otherwise.

    Args:
        clean, noise: `[N, ...]`, `x0` and `e`.
        signal, level: `a` and `b`, of a shape that broadcasts.
    """
    if parametrisation == "flow":
        return noise - clean
    if parametrisation == "v_prediction":
        return signal * noise - level * clean
    return noise if parametrisation == "epsilon" else clean


# Supervised learning where prompts are images: pairs of a degraded image and its target.


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
    # Separate random streams, so that demonstrations and rollouts of a step get different degradations.
    prompts = pictures.shown(chosen, Streams(streams.seed("demonstrations")), step)
    latents = denoiser.to_latents(torch.from_numpy(pictures.targets(chosen)))
    return demonstrations(config, latents, prompts, range(size), prompts, streams, step)
