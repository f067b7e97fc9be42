"""Refuses settings and prompts that a diffusion model cannot serve, before anything is drawn."""

from __future__ import annotations

from groupwise.config import ConfigError
from groupwise.streams import Streams
from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.denoiser import Denoiser
from groupwise_images.diffusion.image_prompts import EncodedPrompts
from groupwise_images.diffusion.splits import Splits
from groupwise_images.diffusion.transition import Schedule


def check_model(
    config: DiffusionConfig,
    denoiser: Denoiser,
    schedule: Schedule,
    splits: Splits,
    guided: EncodedPrompts | None,
) -> None:
    """Refuses a sampler, prompts, video rewards or guidance that a model cannot serve.

    Args:
        config: settings of the domain.
        denoiser: the model.
        schedule: of its scheduler.
        splits: prompts of training and evaluation.
        guided: encoded prompts where guidance is used; None where it is not.

    Raises:
        ConfigError: names the key and what to write.
    """
    if config.sampler.flow_only and schedule.kind != "flow":
        raise ConfigError(
            f"sampler.kind = {config.sampler.kind!r} is for flow matching, and this model's scheduler is not; write"
            " auto, ddim or cps"
        )
    if splits.pictures is None:
        denoiser.check([prompt.columns for prompt in (*splits.train, *splits.evaluated, *splits.image_prompts)])
    else:
        splits.pictures.check(denoiser, config.model)
    if config.video_rewards == "whole" and not denoiser.video:
        raise ConfigError("video_rewards = 'whole': this model makes images, not videos; leave video_rewards out")
    if (
        guided is not None
        and splits.train
        and guided.entry(splits.shown(splits.train[:1], Streams(0), 0)[0])[1] is None
        and not getattr(denoiser, "distilled", False)
    ):
        raise ConfigError(
            f"guidance = {config.guidance}: this model has no unconditional branch to be guided away from; write"
            " guidance = 1"
        )
