"""The networks in torch; their configurations lie beside this file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from groupwise.domain.restoration.enlarge import enlarged


@final
class ResidualStack(nn.Module):
    """The network of `residual.Residual`."""

    def __init__(self, channels: int, width: int, depth: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1), nn.GELU()]
        for _ in range(depth):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.GELU()]
        self.features = nn.Sequential(*layers)
        self.last = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        return images + self.last(self.features(images))


@final
class UpscalingStack(nn.Module):
    """The network of `upscaling.Upscaling`."""

    def __init__(self, channels: int, width: int, depth: int, scale: int) -> None:
        super().__init__()
        self.scale = scale
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1), nn.GELU()]
        for _ in range(depth):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.GELU()]
        self.features = nn.Sequential(*layers)
        self.last = nn.Conv2d(width, channels * scale**2, 3, padding=1)
        assert self.last.bias is not None
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, images: Tensor) -> Tensor:
        return enlarged(images, self.scale) + functional.pixel_shuffle(self.last(self.features(images)), self.scale)


@final
class GatedStack(nn.Module):
    """The network of `gated.Gated`."""

    identity_without = ("head.",)
    """Prefixes of the weights that change nothing while they are fresh: a checkpoint of the plain network may lack"
    " them."""

    def __init__(self, channels: int, width: int, depth: int, bands: int, concentration: float) -> None:
        super().__init__()
        self.stack = ResidualStack(channels, width, depth)
        self.head = nn.Linear(width, 2 * bands)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
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
        self.head = nn.Linear(width, 2 * self.num_controls)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
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
        self.encoder, self.down, self.up, self.decoder = (
            nn.ModuleList(),
            nn.ModuleList(),
            nn.ModuleList(),
            nn.ModuleList(),
        )
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
