"""The smallest network for super-resolution: what bicubic enlargement gives, and what a stack of convolutions adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.config.numbers import Width

if TYPE_CHECKING:
    from torch import nn


@final
class Upscaling(Config):
    """`f(x) = bicubic(x) + shuffle(conv(gelu(... gelu(conv(x)))))`: images of `scale` times the sides.

    Convolutions work on the small image; the last gives `scale^2` numbers a channel, which become the pixels of a
    square. It begins at zero, so that a fresh network is bicubic enlargement, exactly.

    Args:
        channels: of the images, 1 for grey and 3 for colour.
        width: channels inside.
        depth: convolutions between the first and the last.
        scale: how many times larger the sides become.

    Example:
        >>> sum(parameter.numel() for parameter in Upscaling(width=8, depth=1, scale=2).build().parameters())
        956

    Source: Shi et al. 2016, Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel
    Convolutional Neural Network, arXiv 1609.05158, with the sum of Kim et al. 2016, arXiv 1511.04587.
    """

    kind: Literal["upscaling"] = "upscaling"
    channels: Literal[1, 3] = 1
    width: Width = 24
    depth: Annotated[int, Field(ge=0, le=10**4)] = 3
    scale: Literal[2, 3, 4, 8] = 2

    @property
    def num_controls(self) -> int:
        """The number of control parameters that a policy could choose: none."""
        return 0

    def build(self) -> nn.Module:
        """Builds the network with fresh weights."""
        from groupwise.domain.restoration.network.modules import UpscalingStack

        return UpscalingStack(self.channels, self.width, self.depth, self.scale)
