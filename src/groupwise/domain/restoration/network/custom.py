"""Any network of the user: a class or function by its import path, and a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config import Config, ConfigError, InModule, raised_at, user_module

if TYPE_CHECKING:
    from torch import nn


@final
class Custom(Config):
    """`path(**arguments)` must give an `nn.Module` that maps `[N, C, H, W]` in [0, 1] to the same shape.

    A network with control parameters also has `num_controls` (an int), `controls(x) -> (mode, concentration)`, both
    `[N, K]`, and takes `controls=[N, K]` in its call; see `groupwise.domain.restoration.network.gated`.

    Args:
        path: `package.module:Class`.
        arguments: arguments of the class.
        channels: of the images.
        controls: the number of its control parameters.
    """

    kind: Literal["custom"] = "custom"
    path: InModule
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    channels: Literal[1, 3] = 3
    controls: Annotated[int, Field(ge=0, le=2**20)] = 0

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

        try:
            target: Any = user_module(self.path)
        # A user's module may fail in any way while it is imported.
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise ConfigError(
                f"network.path = {self.path!r}: the module cannot be imported: {problem}; it must be installed or lie"
                " in the working directory"
            ) from error
        try:
            for part in self.path.name.split("."):
                target = getattr(target, part)
            network = target(**self.arguments)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}{raised_at(error)}"
            raise ConfigError(
                f"network.path = {self.path!r}: {problem}; write package.module:Class and its arguments"
            ) from error
        if not isinstance(network, nn.Module):
            raise ConfigError(
                f"network.path = {self.path!r} gave a {type(network).__name__}; it must give a torch.nn.Module"
            )
        return network
