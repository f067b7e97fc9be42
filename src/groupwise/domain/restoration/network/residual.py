"""The smallest network that restores: a stack of convolutions that predicts what to add to the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.config.numbers import Width

if TYPE_CHECKING:
    from torch import nn


@final
class Residual(Config):
    """`f(x) = x + conv(gelu(... gelu(conv(x))))`, 3 x 3 convolutions throughout.

    Args:
        channels: of the images, 1 for grey and 3 for colour.
        width: channels inside.
        depth: convolutions between the first and the last.

    Example:
        >>> sum(parameter.numel() for parameter in Residual(width=8, depth=1).build().parameters())
        737

    Source: Zhang et al. 2017, Beyond a Gaussian Denoiser (DnCNN), arXiv 1608.03981, without its batch normalisation.
    """

    scale: ClassVar[int] = 1

    kind: Literal["residual"] = "residual"
    channels: Literal[1, 3] = 1
    width: Width = 24
    depth: Annotated[int, Field(ge=0, le=10**4)] = 3

    @property
    def num_controls(self) -> int:
        """The number of control parameters that a policy could choose: none."""
        return 0

    def build(self) -> nn.Module:
        """Builds the network with fresh weights."""
        from groupwise.domain.restoration.network.modules import ResidualStack

        return ResidualStack(self.channels, self.width, self.depth)
