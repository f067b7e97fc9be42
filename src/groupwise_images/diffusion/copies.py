"""Noised copies of sampled images: their noise, the model's prediction on them, and the errors that a method without
log-probs learns from.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from groupwise.domain.protocol import Samples
from groupwise.objective.decisions import Deviation
from groupwise.objective.matching import CopyMatching
from groupwise.streams import Streams
from groupwise_images.diffusion.denoiser import Denoiser
from groupwise_images.diffusion.image_prompts import PromptConditions
from groupwise_images.diffusion.scorer import Fields, predict
from groupwise_images.diffusion.supervised import target_of
from groupwise_images.diffusion.transition import Schedule, over_images

FIELDS = frozenset({"log_prob", "positive_error", "negative_error", "exact_divergence"})
"""The fields of `Scored` that noised copies have."""


def noise_of(
    samples: Samples, matching: CopyMatching, denoiser: Denoiser, schedule: Schedule, streams: Streams, step: int
) -> dict[str, Any]:
    """Draws noise and times of `K` copies of every member.

    Args:
        samples: whole groups, the members of a prompt one after another.
        matching: the times.
        denoiser: gives the levels at times between those of the sampler.
        schedule: the sampler's own levels.
        streams, step: keys of the draws.

    Returns:
        `copy_noise` `[B, K, ...]`; `copy_time`, `copy_timestep`, `copy_signal` and `copy_level` `[B, K]`, fp64; the
        matching, one entry a member.
    """
    latents = samples.payload["latents"]
    group_size = len(samples) // max(len(samples.prompts), 1)
    shape = (matching.times.num, *latents.shape[1:])
    noise, uniform = latents.new_empty(len(samples), *shape), []
    keys = [(prompt.key, member) for prompt in samples.prompts for member in range(group_size)]
    for place, key in enumerate(keys):
        generator = streams.generator("matching", step, *key)
        uniform.append(torch.rand(matching.times.num, generator=generator, dtype=torch.float64))
        noise[place] = torch.randn(shape, generator=generator, dtype=torch.float32)
    time = matching.times.at(torch.stack(uniform))
    if matching.times.levels == "schedule":
        index = ((1 - time) * schedule.num_steps).long().clamp(0, schedule.num_steps - 1)
        time, timestep = schedule.time[index], schedule.timestep[index]
        signal, level = schedule.signal[index], schedule.noise[index]
    else:
        timestep, signal, level = denoiser.noised(time)
    values = {"copy_time": time, "copy_timestep": timestep, "copy_signal": signal, "copy_level": level}
    return {
        "copy_noise": noise,
        **{name: value.to(latents.device) for name, value in values.items()},
        "matching": [matching] * len(samples),
    }


def predictions(denoiser: Denoiser, samples: Samples, condition: PromptConditions, pairs: Tensor) -> Tensor:
    """Predicts `[N, ...]` on the copies of pairs `[N, 2]` (member, copy), with gradient where it is on.

    Args:
        samples: with what `noise_of` drew in their payload.
        condition: the condition of the samples' prompts.
        pairs: member and copy.
    """
    member, copy = pairs[:, 0], pairs[:, 1]
    payload, clean = samples.payload, samples.payload["latents"][member]
    signal, level = (over_images(payload[name][member, copy], clean) for name in ("copy_signal", "copy_level"))
    return predict(
        denoiser,
        signal * clean + level * payload["copy_noise"][member, copy],
        payload["copy_timestep"][member, copy].to(clean),
        condition,
        samples.group[member],
        payload["guidance"][member],
    )


def copy_fields(
    prediction: Tensor, denoiser: Denoiser, payload: Mapping[str, Any], pairs: Tensor, requires: frozenset[str]
) -> Fields:
    """Computes the fields of pairs `[N, 2]` that `requires` names, from the predictions on their copies.

    Args:
        prediction: `[N, ...]`, with gradient where it has one.
        payload: the payload of the members; without `old_prediction` the policy that sampled is the live one.
        pairs: member and copy.
    """
    member, copy = pairs[:, 0], pairs[:, 1]
    clean, noise = payload["latents"][member], payload["copy_noise"][member, copy]
    signal, level = payload["copy_signal"][member, copy].to(clean), payload["copy_level"][member, copy].to(clean)
    target = target_of(denoiser.parametrisation, clean, noise, over_images(signal, clean), over_images(level, clean))
    old = payload["old_prediction"][member, copy] if "old_prediction" in payload else prediction.detach()
    scales = {"flow": level, "v_prediction": level, "epsilon": level / signal, "sample": torch.ones_like(level)}
    deviation = Deviation(
        live=(prediction - target).flatten(1),
        old=(old - target).flatten(1),
        time=payload["copy_time"][member, copy].to(clean),
        clean_scale=scales[denoiser.parametrisation],
    )
    fields = dict(payload["matching"][0](deviation))
    if "exact_divergence" in requires:
        gap = prediction - payload["reference_prediction"][member, copy]
        fields["exact_divergence"] = gap.square().flatten(1).mean(1)
    return fields
