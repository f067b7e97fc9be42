"""Networks. A new one is a class in the union `NetworkConfig`."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, final

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from groupwise.config import CalledFromPath, Config
from groupwise.config.errors import Length, Positive, Width

# Bicubic enlargement: the baseline of super-resolution, and what its network begins with.


def enlarged(images: Tensor, scale: int) -> Tensor:
    """Enlarges images `[N, C, H, W]` by the cubic filter with a = -1/2, as Pillow and MATLAB do; the same images where
    `scale` is 1.

    Values may leave [0, 1] next to an edge; clamp them.

    Example:
        >>> import torch
        >>> step = torch.tensor([[[[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]]]])
        >>> [round(value, 4) for value in enlarged(step, 2)[0, 0, 0, 6:10].tolist()]
        [-0.0703, 0.2031, 0.7969, 1.0703]
    """
    if scale == 1:
        return images
    # With antialias=False torch takes a = -3/4, which gives lower PSNRs than those that papers report as bicubic.
    return functional.interpolate(
        images, scale_factor=float(scale), mode="bicubic", align_corners=False, antialias=True
    )


@final
class Gated(Config):
    """`f(x, g) = x + sum_k 2 g_k band_k(r(x))`: the correction `r` of a residual stack, split into bands that add up to
    it, each with a gate `g_k` in (0, 1).

    At `g = 1/2` it is the residual stack, exactly. A head of one linear map reads the pooled features and gives the
    gates' most likely values and how sure it is of them; its last layer begins at zero, so that every gate begins at
    1/2.

    Args:
        channels: the number of channels of the images.
        width: channels inside.
        depth: convolutions between the first and the last.
        bands: the correction is averaged over windows of 2, 4, ... pixels to split it into that many bands.
        concentration: the concentration of the gates at the start, `alpha + beta - 2`: larger is less exploration.

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
        return GatedStack(self.channels, self.width, self.depth, self.bands, self.concentration)


# The networks in torch.


def _features(channels: int, width: int, depth: int) -> nn.Sequential:
    """Builds the convolutions of a stack before its last one."""
    layers: list[nn.Module] = []
    for inputs in (channels, *[width] * depth):
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.GELU()]
    return nn.Sequential(*layers)


def _zero(layer: nn.Conv2d | nn.Linear) -> Any:
    """Sets a layer to zero, so that what it computes changes nothing at the start."""
    assert layer.bias is not None
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


@final
class ResidualStack(nn.Module):
    """The network of `residual.Residual`."""

    def __init__(self, channels: int, width: int, depth: int) -> None:
        super().__init__()
        self.features = _features(channels, width, depth)
        self.last = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        return images + self.last(self.features(images))


@final
class UpscalingStack(nn.Module):
    """The network of `upscaling.Upscaling`."""

    def __init__(self, channels: int, width: int, depth: int, scale: int) -> None:
        super().__init__()
        self.scale = scale
        self.features = _features(channels, width, depth)
        self.last = _zero(nn.Conv2d(width, channels * scale**2, 3, padding=1))

    def forward(self, images: Tensor) -> Tensor:
        return enlarged(images, self.scale) + functional.pixel_shuffle(self.last(self.features(images)), self.scale)


@final
class GatedStack(nn.Module):
    """The network of `gated.Gated`."""

    identity_without = ("head.",)
    """Prefixes of the weights that change nothing while they are fresh: a checkpoint of the plain network may lack
    them."""

    def __init__(self, channels: int, width: int, depth: int, bands: int, concentration: float) -> None:
        super().__init__()
        self.stack = ResidualStack(channels, width, depth)
        self.head = _zero(nn.Linear(width, 2 * bands))
        self.num_controls, self.start = bands, concentration

    def controls(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the most likely gates and their concentration, `[N, K]` each."""
        logit, log_scale = self.head(self.stack.features(images).mean((2, 3))).chunk(2, dim=1)
        return logit.sigmoid(), self.start * log_scale.exp()

    def forward(self, images: Tensor, controls: Tensor | None = None) -> Tensor:
        features = self.stack.features(images)
        correction = self.stack.last(features)
        gates = self.head(features.mean((2, 3))).chunk(2, dim=1)[0].sigmoid() if controls is None else controls
        # The bands add up to the correction. Adding the gates' changes to the correction keeps the identity exact in
        # floating point.
        change = 2 * gates - 1
        gated = correction
        for number, band in enumerate(_bands(correction, self.num_controls)):
            gated = gated + change[:, number, None, None, None] * band
        return images + gated


@final
class TonedStack(nn.Module):
    """The network of `toned.Toned`."""

    identity_without = ("head.",)
    """Prefixes of the weights that change nothing while they are fresh: a checkpoint of the plain network may lack
    them."""
    num_controls = 3

    def __init__(self, channels: int, width: int, depth: int, concentration: float) -> None:
        super().__init__()
        self.stack = ResidualStack(channels, width, depth)
        self.head = _zero(nn.Linear(width, 2 * self.num_controls))
        self.start = concentration

    def controls(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the most likely controls and their concentration, `[N, 3]` each."""
        logit, log_scale = self._head(self.stack.features(images))
        return logit.sigmoid(), self.start * log_scale.exp()

    def forward(self, images: Tensor, controls: Tensor | None = None) -> Tensor:
        features = self.stack.features(images)
        restored = images + self.stack.last(features)
        chosen = self._head(features)[0].sigmoid() if controls is None else controls
        contrast, brightness, sharpness = (2 * chosen - 1)[:, :, None, None, None].unbind(1)
        padded = functional.pad(restored, (1, 1, 1, 1), mode="replicate")
        sharpened = restored + sharpness * (restored - functional.avg_pool2d(padded, 3, stride=1))
        # The identity stays exact in floating point where every control is 1/2.
        return sharpened + torch.expm1(contrast * math.log(4)) * (sharpened - 0.5) + 0.5 * brightness

    def _head(self, features: Tensor) -> tuple[Tensor, Tensor]:
        logit, log_scale = self.head(features.mean((2, 3)).detach()).chunk(2, dim=1)
        return logit, log_scale


@final
class NAFNetwork(nn.Module):
    """The network of `nafnet.NAFNet`."""

    def __init__(self, channels: int, width: int, encoder: Sequence[int], middle: int, decoder: Sequence[int]) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.last = nn.Conv2d(width, channels, 3, padding=1)
        self.encoder, self.down, self.up, self.decoder = (nn.ModuleList() for _ in range(4))
        for number in encoder:
            self.encoder.append(_blocks(width, number))
            self.down.append(nn.Conv2d(width, 2 * width, 2, stride=2))
            width *= 2
        self.middle = _blocks(width, middle)
        for number in decoder:
            self.up.append(nn.Sequential(nn.Conv2d(width, 2 * width, 1, bias=False), nn.PixelShuffle(2)))
            width //= 2
            self.decoder.append(_blocks(width, number))

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        step = 2 ** len(self.down)
        padded = functional.pad(images, (0, -width % step, 0, -height % step), mode="replicate")
        value = self.first(padded)
        skipped = []
        for blocks, down in zip(self.encoder, self.down, strict=True):
            value = blocks(value)
            skipped.append(value)
            value = down(value)
        value = self.middle(value)
        for up, blocks, skip in zip(self.up, self.decoder, reversed(skipped), strict=True):
            value = blocks(up(value) + skip)
        return (padded + self.last(value))[:, :, :height, :width]


@final
class NAFBlock(nn.Module):
    """Two residual branches: depthwise convolution with a gate and simplified channel attention; and a gated
    feed-forward map.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = _ChannelNorm(width), _ChannelNorm(width)
        self.expand = nn.Conv2d(width, 2 * width, 1)
        self.depthwise = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width)
        self.attention = nn.Conv2d(width, width, 1)
        self.project = nn.Conv2d(width, width, 1)
        self.widen = nn.Conv2d(width, 2 * width, 1)
        self.narrow = nn.Conv2d(width, width, 1)
        self.beta = nn.Parameter(torch.zeros(1, width, 1, 1))
        self.gamma = nn.Parameter(torch.zeros(1, width, 1, 1))

    def forward(self, value: Tensor) -> Tensor:
        hidden = _gate(self.depthwise(self.expand(self.norm1(value))))
        hidden = hidden * self.attention(hidden.mean((2, 3), keepdim=True))
        value = value + self.beta * self.project(hidden)
        return value + self.gamma * self.narrow(_gate(self.widen(self.norm2(value))))


class _ChannelNorm(nn.Module):
    """Layer normalisation over the channels of every pixel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, value: Tensor) -> Tensor:
        normed = functional.layer_norm(value.permute(0, 2, 3, 1), (value.shape[1],), self.weight, self.bias, 1e-6)
        return normed.permute(0, 3, 1, 2)


def _blocks(width: int, number: int) -> nn.Sequential:
    return nn.Sequential(*(NAFBlock(width) for _ in range(number)))


def _gate(value: Tensor) -> Tensor:
    left, right = value.chunk(2, dim=1)
    return left * right


def _bands(value: Tensor, number: int) -> list[Tensor]:
    """Splits `value` into `number` images that add up to it: each averaging over a window twice as large takes one
    away, and the last is the remainder.
    """
    bands, remainder = [], value
    for level in range(1, number):
        window = min(2**level, *value.shape[2:])
        smooth = functional.interpolate(
            functional.avg_pool2d(remainder, window, ceil_mode=True, count_include_pad=False),
            size=value.shape[2:],
            mode="bilinear",
            align_corners=False,
        )
        bands.append(remainder - smooth)
        remainder = smooth
    return [*bands, remainder]


@final
class NAFNet(Config):
    """`f(x) = x + decoder(encoder(x))`, two levels of blocks for every halving of the image.

    Args:
        channels: the number of channels of the images.
        width: channels of the first level; each further level has twice as many.
        encoder: blocks of each level on the way down; its length is the number of halvings.
        middle: blocks at the bottom.
        decoder: blocks of each level on the way up, as many levels as `encoder`.

    Images whose size is not a multiple of `2^levels` are padded at the right and lower edge and cut again.

    Source: Chen et al. 2022, Simple Baselines for Image Restoration, arXiv 2204.04676, figure 3c and equations 4 to 6.
    """

    scale: ClassVar[int] = 1
    num_controls: ClassVar[int] = 0

    kind: Literal["nafnet"] = "nafnet"
    channels: Literal[1, 3] = 3
    width: Width = 16
    encoder: tuple[Positive, ...] = (1, 1)
    middle: Length = 1
    decoder: tuple[Positive, ...] = (1, 1)

    def model_post_init(self, context: object) -> None:
        """Refuses decoders with another number of levels than the encoder."""
        if len(self.encoder) != len(self.decoder):
            raise ValueError(
                f"decoder = {list(self.decoder)} has {len(self.decoder)} levels and encoder {len(self.encoder)}; write"
                " as many"
            )

    def build(self) -> nn.Module:
        """Builds the network with fresh weights."""
        return NAFNetwork(self.channels, self.width, self.encoder, self.middle, self.decoder)


@final
class Residual(Config):
    """`f(x) = x + conv(gelu(... gelu(conv(x))))`, 3 x 3 convolutions throughout.

    Args:
        channels: the number of channels of the images, 1 for grey and 3 for colour.
        width: channels inside.
        depth: convolutions between the first and the last.

    Example:
        >>> sum(parameter.numel() for parameter in Residual(width=8, depth=1).build().parameters())
        737

    Source: Zhang et al. 2017, Beyond a Gaussian Denoiser (DnCNN), arXiv 1608.03981, without its batch normalisation.
    """

    scale: ClassVar[int] = 1
    num_controls: ClassVar[int] = 0

    kind: Literal["residual"] = "residual"
    channels: Literal[1, 3] = 1
    width: Width = 24
    depth: Annotated[int, Field(ge=0, le=10**4)] = 3

    def build(self) -> nn.Module:
        """Builds the network with fresh weights."""
        return ResidualStack(self.channels, self.width, self.depth)


@final
class Toned(Config):
    """`f(x, g) = 1/2 + 4^u (s - 1/2) + v/2` with `s = r + w (r - mean(r))` and `(u, v, w) = 2 g - 1`: the output `r` of
    a residual stack, its contrast times 1/4 to 4, its brightness moved by up to a half, and its distance to the mean of
    3 x 3 pixels doubled (sharper) or taken away (softer).

    At `g = 1/2` it is the residual stack, exactly. A head of one linear map reads the pooled features, gives each
    control's most likely value and how sure it is of them, and begins at 1/2. No gradient of the head reaches the
    stack: a policy over the controls leaves the restoration itself as it was learnt.

    Args:
        channels: the number of channels of the images.
        width: channels inside.
        depth: convolutions between the first and the last.
        concentration: the concentration of the controls at the start, `alpha + beta - 2`: larger is less exploration.
    """

    scale: ClassVar[int] = 1
    num_controls: ClassVar[int] = 3
    """Contrast, brightness and sharpness."""

    kind: Literal["toned"] = "toned"
    channels: Literal[1, 3] = 1
    width: Width = 24
    depth: Length = 3
    concentration: Annotated[float, Field(gt=0)] = 8.0

    def build(self) -> nn.Module:
        """Builds the network with fresh weights."""
        return TonedStack(self.channels, self.width, self.depth, self.concentration)


@final
class Upscaling(Config):
    """`f(x) = bicubic(x) + shuffle(conv(gelu(... gelu(conv(x)))))`: images of `scale` times the sides.

    Convolutions work on the small image; the last gives `scale^2` numbers a channel, which become the pixels of a
    square. It begins at zero, so that a fresh network is bicubic enlargement, exactly.

    Args:
        channels: the number of channels of the images, 1 for grey and 3 for colour.
        width: channels inside.
        depth: convolutions between the first and the last.
        scale: how many times larger the sides become.

    Example:
        >>> sum(parameter.numel() for parameter in Upscaling(width=8, depth=1, scale=2).build().parameters())
        956

    Source: Shi et al. 2016, Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel
    Convolutional Neural Network, arXiv 1609.05158, with the sum of Kim et al. 2016, arXiv 1511.04587.
    """

    num_controls: ClassVar[int] = 0

    kind: Literal["upscaling"] = "upscaling"
    channels: Literal[1, 3] = 1
    width: Width = 24
    depth: Annotated[int, Field(ge=0, le=10**4)] = 3
    scale: Literal[2, 3, 4, 8] = 2

    def build(self) -> nn.Module:
        """Builds the network with fresh weights."""
        return UpscalingStack(self.channels, self.width, self.depth, self.scale)


@final
class CallableNetwork(CalledFromPath):
    """`path(**arguments)` must give an `nn.Module` that maps `[N, C, H, W]` in [0, 1] to the same shape, or
    to `scale` times the sides.

    A network with control parameters also has `num_controls` (an int), `controls(x) -> (mode, concentration)`, both
    `[N, K]`, and takes `controls=[N, K]` in its call; see `groupwise_images.restoration.network`.

    Args:
        channels: the number of channels of the images.
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
            ConfigError: it cannot be imported or built, or is not a module; names path and reason.
        """
        return self.made(nn.Module, "a torch.nn.Module", "network.path")


NetworkConfig = Annotated[Residual | NAFNet | Gated | Toned | Upscaling | CallableNetwork, Field(discriminator="kind")]
"""Any network, chosen by `kind`."""
