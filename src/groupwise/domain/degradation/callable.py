"""A degradation of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config import Config, ConfigError, InModule, Problem, user_callable, why_failed

if TYPE_CHECKING:
    import numpy as np

_LARGEST = 32.0
"""No noise reaches it on a scale of 0 to 1, and nearly every image of 0 to 255 does."""


@final
class CallableDegradation(Config):
    """The result of a function `degrade(image, random, **arguments)`.

    The image is a numpy array, fp32 `[C, H, W]` in [0, 1], and `random` a numpy generator, from which all randomness is
    to come: the degradations of an evaluation are made again from its seed. The result has the image's shape, or
    `1 / factor` of its sides, and finite values on the same scale; noise may leave [0, 1].

    Args:
        path: `package.module:function`; the module may lie in the working directory.
        arguments: further arguments of the function, by name.
        factor: how many times smaller than the image's the sides of the result are.

    Raises:
        ConfigError: the function cannot be loaded or fails, or its result is of another shape, not finite, or of 0 to
            255.
    """

    kind: Literal["callable"] = "callable"
    path: InModule
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    factor: Annotated[int, Field(ge=1, le=16)] = 1

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        import numpy as np

        key = "degradation.path"
        place, degrade = f"{key} = {str(self.path)!r}", user_callable(self.path, key)
        try:
            degraded = np.asarray(degrade(image.copy(), random, **self.arguments), dtype="float32")
        except ConfigError:
            raise
        except Exception as error:  # a stranger's function may fail in any way
            raise ConfigError(Problem(place, f"the function failed: {why_failed(error)}")) from error
        shape = (len(image), image.shape[1] // self.factor, image.shape[2] // self.factor)
        if degraded.shape != shape:
            reason = "as it was" if self.factor == 1 else f"degradation.factor = {self.factor} times smaller"
            message = f"it gave an image of shape {list(degraded.shape)}; give one of {list(shape)}, {reason}"
            raise ConfigError(Problem(place, message))
        if not np.isfinite(degraded).all():
            raise ConfigError(Problem(place, "it gave values that are not finite; give numbers, mostly in 0 to 1"))
        if (largest := float(np.abs(degraded).max(initial=0.0))) > _LARGEST:
            message = f"it gave values up to {largest:g}, as of an image of 0 to 255; give numbers, mostly in 0 to 1"
            raise ConfigError(Problem(place, message))
        return degraded
