"""The policies as configuration. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.config.errors import Width

if TYPE_CHECKING:
    from groupwise_images.restoration.policy import Policy


@final
class Pixels(Config):
    """`a = sg(mu) + sigma z` at every pixel, `mu = f(x)`; what is shown and rewarded is `clamp(a, 0, 1)`. A decision is
    a block of pixels.

    Args:
        sigma: standard deviation, where white is 1. A schedule may change it (`domain.sampling_schedule`).
        block: pixels on the side of a decision; 1 makes every pixel one. Channels belong to their pixel.
        antithetic: members come in pairs `+z`, `-z`, which takes the noise's own mean out of the group.
    """

    kind: Literal["pixels"] = "pixels"
    sigma: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.2
    block: Width = 1
    antithetic: bool = True

    def open(self) -> Policy:
        """Opens the policy."""
        from groupwise_images.restoration.policy import PixelPolicy

        return PixelPolicy(self)


@final
class Gates(Config):
    """Each control parameter of the network is drawn from a Beta distribution whose mode the network gives; a decision
    is one of them.

    Inference uses the mode. A network that begins at the identity (`network.kind = "gated"`) is exactly its plain self
    there.
    """

    kind: Literal["gates"] = "gates"

    def open(self) -> Policy:
        """Opens the policy."""
        from groupwise_images.restoration.policy import GatePolicy

        return GatePolicy()
