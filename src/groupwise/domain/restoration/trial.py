"""Whether a network suits, tried on one image before anything is trained: what comes out must be an image like what
went in.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from groupwise.config import ConfigError
from groupwise.domain.restoration.config import TileConfig
from groupwise.domain.restoration.tiles import given_sizes
from groupwise.reward.images.fidelity import psnr


def try_network(module: nn.Module, degraded: Tensor, key: str) -> None:
    """One image through the network as it will be called.

    Args:
        module: the network, in the mode in which it is sampled.
        degraded: `[1, C, H, W]`.
        key: of the image, for the message.

    Raises:
        ConfigError: the network fails, gives no image of the same shape and type, no numbers, no gradient, or changes
            what it is given.
    """
    given = degraded.clone()
    try:
        with torch.enable_grad():
            output = module(given)
    except Exception as error:
        raise ConfigError(
            f"model: the network fails on {_of(given)}: {type(error).__name__}: {error}; it must take the source's"
            " images, or domain.patch"
        ) from error
    if not checked(output, degraded).isfinite().all():
        raise ConfigError(f"model: the network gives NaN or infinity for image {key!r}; are its weights whole?")
    if not output.requires_grad:
        raise ConfigError(
            "model: the network's output has no gradient, and nothing would be trained; remove detach() or no_grad()"
            " from its forward"
        )
    if not torch.equal(given, degraded):
        raise ConfigError(
            "model: the network changes the images it is given; write a forward that does not work in place on its"
            " input"
        )


@torch.no_grad()
def try_sizes(module: nn.Module, degraded: Tensor, shapes: Sequence[tuple[int, ...]], tile: TileConfig) -> None:
    """The sizes in which held-out images will be given to the network, each once.

    Args:
        module: the network.
        degraded: `[1, C, H, W]`, of a size that it takes.
        shapes: `[C, H, W]` of the held-out images.
        tile: how they are cut.

    Raises:
        ConfigError: the network fails on one of them; says what to write.
    """
    for height, width in sorted(
        {size for shape in shapes for size in given_sizes(shape[1], shape[2], tile)} - {tuple(degraded.shape[2:])}
    ):
        # Whatever the image holds: what is tried is its size.
        given = degraded.new_full((1, degraded.shape[1], height, width), 0.5)
        try:
            output = module(given)
        except Exception as error:
            raise ConfigError(
                f"model: the network fails on held-out {_of(given)}: {type(error).__name__}: {error}; where its sides"
                " must be multiples of a number, write it as domain.tile.multiple (images are padded and cut again);"
                " otherwise set domain.tile.size"
            ) from error
        checked(output, given)


@torch.no_grad()
def other_convention(module: nn.Module, degraded: Tensor, clean: Tensor) -> str:
    """What to say of trained weights that restore images only when they are called in another way than the one they are
    called in; empty where all is well.

    Such a network is no error, as it would be trained until it gives images; but it would have lost what it knew. Nor
    is one that restores something else than these images need, which does better the less of it there is: the other way
    must be better than leaving the images as they are, and than black.

    Args:
        module: the network, in the mode in which it is sampled.
        degraded, clean: `[N, C, H, W]`, within [0, 1].

    Returns:
        a sentence with the PSNRs (dB) and what to write, where another way has less than half its squared error, and at
            least 1 dB less than the degraded images and than black ones.
    """
    own = module(degraded)
    outputs = {
        "its output is added to what it is given, as a residual": degraded + own,
        "its output is taken from what it is given, as the noise in it": degraded - own,
        "its output is 0 to 255": own / 255,
    }
    # A network may refuse what is beyond [0, 1].
    with suppress(Exception):
        outputs["both are 0 to 255"] = module(degraded * 255) / 255
    error = lambda image: float((image.double() - clean.double()).square().mean())  # noqa: E731
    what = min(outputs, key=lambda name: error(outputs[name]))
    if not error(outputs[what]) < min(error(own) / 2, 0.8 * error(degraded), 0.8 * error(torch.zeros_like(clean))):
        return ""
    as_it_is, so, before = (
        f"{psnr(image.double().cpu().numpy(), clean.double().cpu().numpy()):.1f} dB"
        for image in (own, outputs[what], degraded)
    )
    numbers = f"{as_it_is} as it is, {so} so, {before} before it"
    return (
        f"model: the network seems to be one where {what} ({numbers}); where that is so, give a module whose forward"
        " returns the restored image in [0, 1]"
    )


def checked(output: Any, given: Tensor, when: str = "") -> Tensor:
    """What a network gave, where it is an image of the shape and type of what it was given.

    Args:
        output: of the network.
        given: `[N, C, H, W]`.
        when: for the message.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(output, Tensor):
        raise ConfigError(
            f"model: the network gives a {type(output).__name__} for {_of(given)}{when}; write a network that gives the"
            " restored images alone"
        )
    if output.shape != given.shape or output.dtype != given.dtype:
        got = f"{list(output.shape)} ({_type(output)})"
        raise ConfigError(
            f"model: the network gives {got} for {_of(given)}{when}; a restoration network gives the same shape and"
            " type"
        )
    return output


def _of(given: Tensor) -> str:
    return f"images of {list(given.shape)} ({_type(given)})"


def _type(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
