"""Networks that restore: images in, images of the same size out, or of `scale` times the sides. One architecture a
file; adding a file to this union is the whole registration.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.domain.restoration.network.callable import CallableNetwork
from groupwise.domain.restoration.network.gated import Gated
from groupwise.domain.restoration.network.nafnet import NAFNet
from groupwise.domain.restoration.network.residual import Residual
from groupwise.domain.restoration.network.toned import Toned
from groupwise.domain.restoration.network.upscaling import Upscaling

NetworkConfig = Annotated[Residual | NAFNet | Gated | Toned | Upscaling | CallableNetwork, Field(discriminator="kind")]
"""Any network, told apart by `kind`."""

__all__ = ["CallableNetwork", "Gated", "NAFNet", "NetworkConfig", "Residual", "Toned", "Upscaling"]
