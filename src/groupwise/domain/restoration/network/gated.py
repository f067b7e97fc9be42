"""A network with control parameters: how much of each band of frequencies, and of the whole correction, goes into the
image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.config.numbers import Length, Width

if TYPE_CHECKING:
    from torch import nn


@final
class Gated(Config):
    """`f(x, g) = x + sum_k 2 g_k band_k(r(x))`: the correction `r` of a residual stack, split into bands that add up to
    it, each with a gate `g_k` in (0, 1).

    At `g = 1/2` it is the residual stack, exactly. A head of one linear map reads the pooled features and gives the
    gates' most likely values and how sure it is of them; its last layer begins at zero, so that every gate begins at
    1/2.

    Args:
        channels: of the images.
        width: channels inside.
        depth: convolutions between the first and the last.
        bands: the correction is averaged over windows of 2, 4, ... pixels to split it into so many bands.
        concentration: of the gates at the start, `alpha + beta - 2`: larger is less exploration.

    The gates are those of source 001 (frequency modules and fusion scales), with the two things that its code lacked:
    they begin at the identity, and inference uses them.
    """

    scale: ClassVar[int] = 1

    kind: Literal["gated"] = "gated"
    channels: Literal[1, 3] = 1
    width: Width = 24
    depth: Length = 3
    bands: Annotated[int, Field(ge=1, le=6)] = 3
    concentration: Annotated[float, Field(gt=0)] = 20.0

    @property
    def num_controls(self) -> int:
        """The number of control parameters that a policy may choose: one a band."""
        return self.bands

    def build(self) -> nn.Module:
        """Builds the network with fresh weights."""
        from groupwise.domain.restoration.network.modules import GatedStack

        return GatedStack(self.channels, self.width, self.depth, self.bands, self.concentration)
