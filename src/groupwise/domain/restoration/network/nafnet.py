"""A small NAFNet: an encoder and decoder of blocks whose only nonlinearity is a product of two halves of
the channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, final

from groupwise.config import Config
from groupwise.config.numbers import Length, Positive, Width

if TYPE_CHECKING:
    from torch import nn


@final
class NAFNet(Config):
    """`f(x) = x + decoder(encoder(x))`, two levels of blocks for every halving of the image.

    Args:
        channels: of the images.
        width: channels of the first level; each further level has twice as many.
        encoder: blocks of each level on the way down; its length is the number of halvings.
        middle: blocks at the bottom.
        decoder: blocks of each level on the way up, as many levels as `encoder`.

    Images whose size is no multiple of `2^levels` are padded at the right and lower edge and cut again.

    Source: Chen et al. 2022, Simple Baselines for Image Restoration, arXiv 2204.04676, figure 3c and equations 4 to 6.
    """

    scale: ClassVar[int] = 1

    kind: Literal["nafnet"] = "nafnet"
    channels: Literal[1, 3] = 3
    width: Width = 16
    encoder: tuple[Positive, ...] = (1, 1)
    middle: Length = 1
    decoder: tuple[Positive, ...] = (1, 1)

    @property
    def num_controls(self) -> int:
        """The number of control parameters that a policy could choose: none."""
        return 0

    def model_post_init(self, context: object) -> None:
        """Refuses decoders with another number of levels than the encoder."""
        if len(self.encoder) != len(self.decoder):
            raise ValueError(
                f"decoder = {list(self.decoder)} has {len(self.decoder)} levels and encoder {len(self.encoder)}; write"
                " as many"
            )

    def build(self) -> nn.Module:
        """Builds the network with fresh weights."""
        from groupwise.domain.restoration.network.modules import NAFNetwork

        return NAFNetwork(self.channels, self.width, self.encoder, self.middle, self.decoder)
