"""A loss of the user's own that has a gradient: what would otherwise be a reward, for training by backpropagation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, final

from pydantic import Field

from groupwise.config import Config, ConfigError, InModule, Problem, user_callable, why_failed

if TYPE_CHECKING:
    from torch import Tensor


@final
class DifferentiableLoss(Config):
    """`weight` times the result of a function `loss(images, **columns) -> [N]`, added to the distance of `supervised`.

    The images `[N, C, H, W]` are the network's output with its gradient. Of the source's columns the function is given
    those that it has parameters for. It is a control for rewards: what a gradient through the reader achieves.

    Args:
        path: `package.module:function`; the module may lie in the working directory.
        arguments: further arguments of the function, by name.
        weight: factor.

    Raises:
        ConfigError: the function cannot be loaded or fails, or its result is not one finite number an image.
    """

    path: InModule
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    def __call__(self, images: Tensor, columns: Mapping[str, Sequence[Any]]) -> Tensor:
        import torch

        from groupwise.reward.scoring.table import arguments_for

        key = "differentiable.path"
        place, loss = f"{key} = {str(self.path)!r}", user_callable(self.path, key)
        try:
            values = loss(images, **arguments_for(loss, columns), **self.arguments)
        except ConfigError:
            raise
        except Exception as error:  # a stranger's function may fail in any way
            raise ConfigError(Problem(place, f"the function failed: {why_failed(error)}")) from error
        if not isinstance(values, torch.Tensor) or values.shape != images.shape[:1]:
            shape = list(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
            raise ConfigError(Problem(place, f"it gave {shape}; give a tensor of {[len(images)]}, a number an image"))
        if not values.requires_grad and images.requires_grad:
            raise ConfigError(Problem(place, "its result has no gradient; compute it from the images with torch"))
        if not values.isfinite().all():
            raise ConfigError(Problem(place, "it gave values that are not finite; give a finite number an image"))
        return self.weight * values
