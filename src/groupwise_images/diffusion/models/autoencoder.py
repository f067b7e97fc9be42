"""Images and latents: the autoencoder of a pipeline, with its scale and shift. It runs in the precision of its own
weights, also where the denoiser is cast.
"""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from groupwise.config import ConfigError


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Returns the context in which a frozen part computes in the precision of its own weights."""
    return torch.autocast(device.type, enabled=False)


def check_finite(value: Tensor, what: str) -> None:
    """Refuses values of a frozen part that are not finite: eight bits would turn NaN into black.

    Args:
        value: returned by the part.
        what: the part, and what it does.

    Raises:
        ConfigError: names the part.
    """
    if value.is_floating_point() and not bool(value.isfinite().all()):
        raise ConfigError(
            f"{what} NaN or infinity; its weights in domain.model.path are damaged, or overflow in half precision"
            ' (domain.model.dtype = "float32")'
        )


def decode(vae: Any, latents: Tensor) -> Tensor:
    """Decodes latents `[N, C, h, w]` as images `[N, 3, H, W]` in [0, 1], fp32; those of an autoencoder of videos have
    an axis of time after the channels.

    Raises:
        ConfigError: an image is not finite.
    """
    scale, shift = _scale_and_shift(vae, latents)
    with torch.no_grad(), without_autocast(latents.device):
        decoded = vae.decode((latents * scale + shift).to(vae.dtype), return_dict=False)[0].float()
        check_finite(decoded, "vae: it decodes latents as")
        return (decoded / 2 + 0.5).clamp(0, 1)


def encode(vae: Any, images: Tensor, *, frames: bool = False) -> Tensor:
    """Encodes images `[N, C, H, W]` in [0, 1] (grey ones as grey colours) as latents, the mean of the autoencoder's
    distribution.

    Args:
        vae: the autoencoder.
        images: to be encoded.
        frames: whether the autoencoder takes videos; an image is then one of a single frame.

    Raises:
        ConfigError: a latent is not finite.
    """
    colour = images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images
    colour = colour[:, :, None] if frames else colour
    with torch.no_grad(), without_autocast(vae.device):
        latents = vae.encode((colour * 2 - 1).to(vae.device, vae.dtype)).latent_dist.mean.float()
    check_finite(latents, "vae: it encodes images as")
    scale, shift = _scale_and_shift(vae, latents)
    return (latents - shift) / scale


def _scale_and_shift(vae: Any, latents: Tensor) -> tuple[Tensor | float, Tensor | float]:
    """Reads the factors from the denoiser's latents to the autoencoder's: `z scale + shift`."""
    config = vae.config
    mean, std = getattr(config, "latents_mean", None), getattr(config, "latents_std", None)
    scaling_factor = getattr(config, "scaling_factor", None) or 1.0
    if mean is None or std is None:
        return 1 / scaling_factor, getattr(config, "shift_factor", None) or 0.0
    per_channel = (
        torch.tensor(statistic, dtype=latents.dtype, device=latents.device).view(1, -1, *[1] * (latents.dim() - 2))
        for statistic in (mean, std)
    )
    centre, spread = per_channel
    return spread / scaling_factor, centre
