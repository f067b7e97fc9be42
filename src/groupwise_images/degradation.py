"""Degradations of clean images. A new one is a class in the union `Degradation`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar, final

import numpy as np
from pydantic import Field, model_validator

from groupwise.config import Config, ConfigError, InModule, Problem, user_callable, why_failed
from groupwise.config.errors import Length


class _SameSize(Config):
    """A degradation that keeps the size of an image."""

    factor: ClassVar[int] = 1


@final
class Blur(_SameSize):
    """Convolution with a Gaussian, the edge repeated outwards.

    Args:
        sigma: its standard deviation, pixels.

    Example:
        >>> import numpy
        >>> flat = Blur(sigma=2.0)(numpy.full((1, 8, 8), 0.25, "float32"), numpy.random.default_rng(0))
        >>> bool(abs(flat - 0.25).max() < 1e-6)
        True
    """

    kind: Literal["blur"] = "blur"
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        from scipy.ndimage import gaussian_filter

        return gaussian_filter(image, sigma=(0, self.sigma, self.sigma), mode="nearest").astype("float32")


@final
class Downscale(Config):
    """An image of `1 / factor` the sides, each pixel a mean over the pixels that it replaces.

    A network that enlarges by the same factor (`network.kind = "upscaling"`) restores it: super-resolution.

    Args:
        factor: how many times smaller the sides become.
        filter: `bicubic` is the antialiased cubic filter in which the test sets of super-resolution were made; `box`
            is the plain mean over squares.

    Raises:
        ConfigError: a side of the image is not a multiple of the factor.

    Example:
        >>> import numpy
        >>> ramp = numpy.arange(16, dtype="float32").reshape(1, 4, 4) / 16
        >>> Downscale(factor=2, filter="box")(ramp, numpy.random.default_rng(0)).tolist()
        [[[0.15625, 0.28125], [0.65625, 0.78125]]]
    """

    kind: Literal["downscale"] = "downscale"
    factor: Literal[2, 3, 4, 8] = 2
    filter: Literal["bicubic", "box"] = "bicubic"

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        from PIL import Image

        height, width = image.shape[1:]
        if height % self.factor or width % self.factor:
            raise ConfigError(
                f"degradation.factor = {self.factor}: an image of {height} x {width} pixels cannot be made so many"
                " times smaller; cut its sides to multiples of the factor, or write domain.patch = one"
            )
        kernel = Image.Resampling.BICUBIC if self.filter == "bicubic" else Image.Resampling.BOX
        size = (width // self.factor, height // self.factor)
        channels = [np.asarray(Image.fromarray(channel).resize(size, kernel)) for channel in image.astype("float32")]
        return np.stack(channels).clip(0, 1)


@final
class GaussianNoise(_SameSize):
    """`x + sigma z`, one normal number a pixel and channel; the result is not clamped.

    Args:
        sigma: standard deviation, on the scale on which white is 1 (a sigma of 25 grey levels is 25 / 255 = 0.098).

    Example:
        >>> import numpy
        >>> GaussianNoise(sigma=0.0)(numpy.full((1, 1, 2), 0.5, "float32"), numpy.random.default_rng(0)).tolist()
        [[[0.5, 0.5]]]
    """

    kind: Literal["gaussian_noise"] = "gaussian_noise"
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return (image + self.sigma * random.standard_normal(image.shape)).astype("float32")


_HILLS = 0.5


@final
class Haze(_SameSize):
    """`t x + (1 - t) air` with the transmission `t = exp(-density depth)`.

    The depth is drawn for each image, smooth and from 0 (near) to 1 (far): it rises towards one side, as a ground seen
    from above does, with hills on it.

    Args:
        density: optical depth of the furthest pixel; 1 leaves 37 % of its light.
        air: brightness of the air, where white is 1.

    Example:
        >>> import numpy
        >>> hazy = Haze(density=2.0)(numpy.zeros((3, 16, 16), "float32"), numpy.random.default_rng(0))
        >>> round(float(hazy.min()), 3), round(float(hazy.max()), 3)  # black, and air over black: 0.9 (1 - exp(-2))
        (0.0, 0.778)

    Source: Koschmieder's law; Narasimhan and Nayar 2002, Vision and the Atmosphere, equation 3 with one colour of air.
    """

    kind: Literal["haze"] = "haze"
    density: Annotated[float, Field(ge=0, le=50)] = 1.5
    air: Annotated[float, Field(ge=0, le=1)] = 0.9

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        transmission = np.exp(-self.density * self._depth(image.shape[1], image.shape[2], random))
        return (transmission * image + (1 - transmission) * self.air).astype("float32")

    def _depth(self, height: int, width: int, random: np.random.Generator) -> np.ndarray:
        from scipy.ndimage import gaussian_filter

        angle = random.uniform(0, 2 * np.pi)
        rows, columns = np.linspace(-1, 1, height)[:, None], np.linspace(-1, 1, width)
        hills = gaussian_filter(random.standard_normal((height, width)), max(height, width) / 6, mode="reflect")
        depth = (np.cos(angle) * rows + np.sin(angle) * columns) / 2
        spread = hills.std()
        # The hills are half as high as the rise across the image, which has height 1.
        depth = depth + (_HILLS * hills / (2 * spread) if spread > 0 else 0)
        least, most = depth.min(), depth.max()
        return (depth - least) / (most - least) if most > least else np.zeros_like(depth)


@final
class Jpeg(_SameSize):
    """Compression and decompression by Pillow; the image is rounded to 8 bits first.

    Args:
        quality: Pillow's.

    Example:
        >>> import numpy
        >>> Jpeg(quality=20)(numpy.zeros((3, 16, 16), "float32"), numpy.random.default_rng(0)).shape
        (3, 16, 16)
    """

    kind: Literal["jpeg"] = "jpeg"
    quality: Annotated[int, Field(ge=1, le=95)] = 20

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        from groupwise.reward.image import through_jpeg

        levels = (image.clip(0, 1) * 255 + 0.5).astype("uint8")
        decoded = through_jpeg(levels[0] if len(levels) == 1 else levels.transpose(1, 2, 0), self.quality)
        return (decoded[None] if decoded.ndim == 2 else decoded.transpose(2, 0, 1)).astype("float32") / 255


@final
class LowLight(_SameSize):
    """`Poisson(photons * gain * x^gamma) / photons`.

    Args:
        gain: share of the light that is left, for white.
        gamma: above 1 darkens the middle tones more than white.
        photons: the photons of a white pixel under full light; unset means no noise.

    Example:
        >>> import numpy
        >>> LowLight(gain=0.5, gamma=2.0, photons=None)(
        ...     numpy.full((1, 1, 1), 0.5, "float32"), numpy.random.default_rng(0)
        ... ).item()
        0.125
    """

    kind: Literal["low_light"] = "low_light"
    gain: Annotated[float, Field(gt=0, le=1)] = 0.3
    gamma: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.5
    photons: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 500.0

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        dark = self.gain * image.clip(0, 1) ** self.gamma
        return (dark if self.photons is None else random.poisson(self.photons * dark) / self.photons).astype("float32")


_Result = TypeVar("_Result")
_LARGEST = 32.0
"""Images with larger values are taken to be on a scale of 0 to 255. Noise does not lift an image of 0 to 1 this far,
and nearly every image of 0 to 255 is above it.
"""


def call_own(call: Callable[[], _Result], place: str) -> _Result:
    """Makes a call of a function of the user's, which may fail in any way.

    Raises:
        ConfigError: it fails; the message begins with `place`, the key and its value.
    """
    try:
        return call()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(Problem(place, f"the function failed: {why_failed(error)}")) from error


@final
class CallableDegradation(Config):
    """The result of a function `degrade(image, random, **arguments)`.

    The image is a numpy array, fp32 `[C, H, W]` in [0, 1], and `random` a numpy generator, from which all randomness is
    to come: the degradations of an evaluation are made again from its seed. The result has the image's shape, or
    `1 / factor` of its sides, and finite values on the same scale; noise may leave [0, 1].

    Args:
        path: `package.module:function`; the module may be in the working directory.
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
        place, degrade = f"degradation.path = {str(self.path)!r}", user_callable(self.path, "degradation.path")
        degraded = call_own(lambda: np.asarray(degrade(image.copy(), random, **self.arguments), dtype="float32"), place)
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


@final
class Rain(_SameSize):
    """Streaks of light added to the image: drops at random pixels, drawn out to lines of one slope.

    Args:
        density: share of the pixels where a streak begins.
        length: the length of a streak, pixels.
        angle: the most it leans from the vertical, degrees; the lean is drawn for each image.
        strength: brightness of a streak, where white is 1.

    Example:
        >>> import numpy
        >>> wet = Rain(density=0.05)(numpy.zeros((3, 16, 16), "float32"), numpy.random.default_rng(0))
        >>> bool(wet.max() > 0), bool((wet[0] == wet[1]).all())
        (True, True)
    """

    kind: Literal["rain"] = "rain"
    density: Annotated[float, Field(ge=0, le=1)] = 0.01
    length: Length = 9
    angle: Annotated[float, Field(ge=0, lt=90)] = 20.0
    strength: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.4

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        height, width = image.shape[1:]
        slope = np.tan(np.deg2rad(random.uniform(-self.angle, self.angle)))
        drops = np.argwhere(random.random((height, width)) < self.density)
        streaks = np.zeros((height, width))
        for place in range(self.length):
            rows, columns = drops[:, 0] + place, np.round(drops[:, 1] + slope * place).astype(int)
            inside = (rows < height) & (columns >= 0) & (columns < width)
            streaks[rows[inside], columns[inside]] = self.strength
        return (image + streaks).clip(0, 1).astype("float32")


Part = Annotated[
    GaussianNoise | Blur | LowLight | Jpeg | Rain | Haze | Downscale | CallableDegradation, Field(discriminator="kind")
]


@final
class Mixed(Config):
    """All parts in their order (`choose = "all"`), or one drawn for each image (`choose = "one"`).

    Args:
        parts: degradations. Where one is drawn, all must shrink an image by the same factor.

    Example:
        >>> import numpy
        >>> twice_darker = Mixed(
        ...     parts=(LowLight(gain=0.5, gamma=1.0, photons=None), LowLight(gain=0.5, gamma=1.0, photons=None))
        ... )
        >>> twice_darker(numpy.ones((1, 1, 1), "float32"), numpy.random.default_rng(0)).item()
        0.25
    """

    kind: Literal["mixed"] = "mixed"
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]
    choose: Literal["all", "one"] = "all"

    @model_validator(mode="after")
    def _one_size(self) -> Mixed:
        factors = {part.kind: part.factor for part in self.parts}
        if self.choose == "one" and len(set(factors.values())) > 1:
            raise ValueError(
                f'choose = "one" would give images of several sizes: factors are {factors}; give parts of one factor,'
                ' or write choose = "all"'
            )
        return self

    @property
    def factor(self) -> int:
        """The factor by which the sides become smaller: the product over the parts, or that of each part where one is
        drawn.
        """
        return self.parts[0].factor if self.choose == "one" else math.prod(part.factor for part in self.parts)

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        if self.choose == "one":
            return self.parts[int(random.integers(len(self.parts)))](image, random)
        for part in self.parts:
            image = part(image, random)
        return image


Degradation = Annotated[
    GaussianNoise | Blur | LowLight | Jpeg | Rain | Haze | Downscale | CallableDegradation | Mixed,
    Field(discriminator="kind"),
]
"""Any degradation, chosen by `kind`. Each is called as `degrade(image, random)` with an image fp32 `[C, H, W]` in
[0, 1] and a numpy generator, and gives one of `1 / factor` the sides; `factor` is 1 for all but those that shrink an
image.
"""
