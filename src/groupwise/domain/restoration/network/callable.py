"""Any network of the user: a class or function by its import path, and a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, final

from pydantic import Field

from groupwise.config import CalledFromPath

if TYPE_CHECKING:
    from torch import nn


@final
class CallableNetwork(CalledFromPath):
    """`path(**arguments)` must give an `nn.Module` that maps `[N, C, H, W]` in [0, 1] to the same shape, or
    to `scale` times the sides.

    A network with control parameters also has `num_controls` (an int), `controls(x) -> (mode, concentration)`, both
    `[N, K]`, and takes `controls=[N, K]` in its call; see `groupwise.domain.restoration.network.gated`.

    Args:
        channels: of the images.
        controls: the number of its control parameters.
        scale: how many times larger than the input's the sides of its output are.
    """

    channels: Literal[1, 3] = 3
    controls: Annotated[int, Field(ge=0, le=2**20)] = 0
    scale: Annotated[int, Field(ge=1, le=16)] = 1

    @property
    def num_controls(self) -> int:
        """The number of control parameters that a policy may choose."""
        return self.controls

    def build(self) -> nn.Module:
        """Builds the network with the user's code.

        Raises:
            ConfigError: it cannot be imported or built, or is no module; names path and reason.
        """
        from torch import nn

        return self.made(nn.Module, "a torch.nn.Module", "network.path")
