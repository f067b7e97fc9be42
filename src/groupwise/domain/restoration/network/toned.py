"""A network that restores and then sets the tones of the whole picture: contrast, brightness, sharpness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.config.numbers import Length, Width

if TYPE_CHECKING:
    from torch import nn


@final
class Toned(Config):
    """`f(x, g) = 1/2 + 4^u (s - 1/2) + v/2` with `s = r + w (r - mean(r))` and `(u, v, w) = 2 g - 1`: the output `r` of
    a residual stack, its contrast times 1/4 to 4, its brightness moved by up to a half, and its distance to the mean of
    3 x 3 pixels doubled (sharper) or taken away (softer).

    At `g = 1/2` it is the residual stack, exactly. A head of one linear map reads the pooled features, gives each
    control's most likely value and how sure it is of them, and begins at 1/2. No gradient of the head reaches the
    stack: a policy over the controls leaves the restoration itself as it was learnt.

    Args:
        channels: of the images.
        width: channels inside.
        depth: convolutions between the first and the last.
        concentration: of the controls at the start, `alpha + beta - 2`: larger is less exploration.
    """

    scale: ClassVar[int] = 1

    kind: Literal["toned"] = "toned"
    channels: Literal[1, 3] = 1
    width: Width = 24
    depth: Length = 3
    concentration: Annotated[float, Field(gt=0)] = 8.0

    @property
    def num_controls(self) -> int:
        """3: contrast, brightness, sharpness."""
        return 3

    def build(self) -> nn.Module:
        """Builds the network with fresh weights."""
        from groupwise.domain.restoration.network.modules import TonedStack

        return TonedStack(self.channels, self.width, self.depth, self.concentration)
