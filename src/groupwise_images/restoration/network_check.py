"""Checks a network on one image before anything is trained: its output must be an image like its input."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from groupwise.config import ConfigError
from groupwise.domain.pass_sizes import PassSizes, joined, joined_rows
from groupwise_images.restoration.config import TileConfig
from groupwise_images.restoration.tiles import input_sizes


def try_network(module: nn.Module, degraded: Tensor, key: str, scale: int = 1) -> None:
    """Passes one image through the network as it will be called.

    Args:
        module: the network, in the mode in which it is sampled.
        degraded: `[1, C, H, W]`.
        key: the image's name in error messages.
        scale: how many times larger than its input's the sides of its output are to be.

    Raises:
        ConfigError: the network fails, gives no image of the same shape and type, no numbers, no gradient, or changes
            its input.
    """
    images = degraded.clone()
    try:
        with torch.enable_grad():
            output = module(images)
    except Exception as error:
        raise ConfigError(
            f"model: the network fails on {_of(images)}: {type(error).__name__}: {error}; it must take the source's"
            " images, or domain.patch"
        ) from error
    if not checked(output, degraded, scale=scale).isfinite().all():
        raise ConfigError(f"model: the network gives NaN or infinity for image {key!r}; are its weights whole?")
    if not output.requires_grad:
        raise ConfigError(
            "model: the network's output has no gradient, and nothing would be trained; remove detach() or no_grad()"
            " from its forward"
        )
    if not torch.equal(images, degraded):
        raise ConfigError(
            "model: the network changes the images it is given; write a forward that does not work in place on its"
            " input"
        )


@torch.no_grad()
def try_sizes(
    module: nn.Module, degraded: Tensor, shapes: Sequence[tuple[int, ...]], tile: TileConfig, scale: int = 1
) -> None:
    """Passes an image of each size that held-out images will have through the network.

    Args:
        degraded: `[1, C, H, W]`, of a size that the network takes.
        shapes: `[C, H, W]` of the held-out images, as the network is given them.
        tile: how they are cut.
        scale: how many times larger than its input's the sides of its output are to be.

    Raises:
        ConfigError: the network fails on one of them; says what to write.
    """
    for height, width in sorted(
        {size for shape in shapes for size in input_sizes(shape[1], shape[2], tile)} - {tuple(degraded.shape[2:])}
    ):
        # The pixels do not matter, only the size does.
        images = degraded.new_full((1, degraded.shape[1], height, width), 0.5)
        try:
            output = module(images)
        except Exception as error:
            raise ConfigError(
                f"model: the network fails on held-out {_of(images)}: {type(error).__name__}: {error}; where its sides"
                " must be multiples of a number, write it as domain.tile.multiple (images are padded and cut again);"
                " otherwise set domain.tile.size"
            ) from error
        checked(output, images, scale=scale)


def checked(output: Any, images: Tensor, when: str = "", scale: int = 1) -> Tensor:
    """Returns a network's output where it is an image of the shape, times `scale`, and type of its input.

    Args:
        output: the output of the network.
        images: the network's input, `[N, C, H, W]`.
        when: added to the message, such as ` in training mode`.
        scale: how many times larger than its input's the sides of its output are to be.

    Raises:
        ConfigError: the output is something else.
    """
    if not isinstance(output, Tensor):
        raise ConfigError(
            f"model: the network gives a {type(output).__name__} for {_of(images)}{when}; write a network that gives"
            " the restored images alone"
        )
    number, channels, height, width = images.shape
    if output.shape != (number, channels, height * scale, width * scale) or output.dtype != images.dtype:
        output_text = f"{list(output.shape)} ({_type(output)})"
        requirement = (
            "the same shape and type (where its output is larger, write its factor as network.scale)"
            if scale == 1
            else f"the same type and {scale} times the sides (network.scale = {scale})"
        )
        raise ConfigError(
            f"model: the network gives {output_text} for {_of(images)}{when}; a restoration network gives {requirement}"
        )
    return output


def _of(images: Tensor) -> str:
    return f"images of {list(images.shape)} ({_type(images)})"


def _type(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


@final
class CutNetwork(nn.Module):
    """Calls a network on a few images at a time; in evaluation mode the outputs are those of one call, up to rounding.

    Args:
        network: maps images `[N, C, H, W]`, each by itself.
        passes: images in a pass, with gradient and without.

    Example:
        >>> passes = PassSizes({"sampling": 2, "update": 2})
        >>> CutNetwork(nn.Flatten(), passes)(torch.zeros(5, 1, 2, 2)).shape
        torch.Size([5, 4])
    """

    def __init__(self, network: nn.Module, passes: PassSizes) -> None:
        super().__init__()
        self._network, self._passes = network, passes

    def forward(self, images: Tensor, controls: Tensor | None = None) -> Tensor:
        """Restores images, with other control parameters than its own where they are given."""

        def restore(rows: Tensor) -> Tensor:
            settings = {} if controls is None else {"controls": controls[rows]}
            return self._network(images[rows], **settings)

        return joined(self._parts(restore, images), len(images))

    def controls(self, images: Tensor) -> tuple[Tensor, ...]:
        """Returns the mode and the concentration of every control parameter, of each image."""
        names = ("mode", "concentration")
        parts = self._parts(
            lambda rows: dict(zip(names, cast(Any, self._network).controls(images[rows]), strict=True)), images
        )
        return tuple(joined_rows(parts, len(images)).values())

    def _parts(self, compute: Callable[[Tensor], Any], images: Tensor) -> Iterable[Any]:
        return self._passes.apply(compute, torch.arange(len(images), device=images.device))
