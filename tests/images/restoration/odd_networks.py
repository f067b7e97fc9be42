"""Networks as users write them: some that suit, and many that do not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Plain(nn.Module):
    """What a restoration network is: an image in, an image out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, images: Tensor) -> Any:
        return images + self.last(self.inside(self.first(images)))

    def inside(self, value: Tensor) -> Tensor:
        return value.relu()


class Normalised(Plain):
    """Batch normalisation and dropout: another network while it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer("scale", torch.ones(4, 1, 1))

    def inside(self, value: Tensor) -> Tensor:
        return nn.functional.dropout(self.norm(value), 0.5, self.training) * self.scale


class Pair(Plain):
    def forward(self, images: Tensor) -> Any:
        return super().forward(images), images


class Half(Plain):
    def forward(self, images: Tensor) -> Any:
        return super().forward(images).half()


class Lost(Plain):
    def forward(self, images: Tensor) -> Any:
        return super().forward(images) * float("nan")


class Detached(Plain):
    def forward(self, images: Tensor) -> Any:
        return super().forward(images).detach()


class Deep(Plain):
    """Supervised at two scales: a list while it is trained."""

    def forward(self, images: Tensor) -> Any:
        found = super().forward(images)
        return [found, nn.functional.avg_pool2d(found, 2)] if self.training else found


class Pooled(Plain):
    """A batch normalisation of one value an image."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def inside(self, value: Tensor) -> Tensor:
        return value * self.norm(value.mean((2, 3)))[:, :, None, None]


class Frozen(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)


class Bright(Plain):
    """Fails to give numbers for bright images."""

    def forward(self, images: Tensor) -> Any:
        return super().forward(images) + torch.where(images.mean((1, 2, 3), keepdim=True) > 0.9, torch.inf, 0.0)


class Grouped(Plain):
    """With layers that an adapter cannot have, and two that share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise, self.project = nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.Conv2d(4, 4, 1)
        self.one, self.two = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
        self.two.weight = self.one.weight

    def inside(self, value: Tensor) -> Tensor:
        return self.two(self.one(self.project(self.depthwise(value)).relu()))


class Wrapped(nn.Module):
    """As one writes to take one of several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.module = Pair()

    def forward(self, images: Tensor) -> Any:
        return self.module(images)[0]


class Steered(Plain):
    """Two control parameters of one's own; `how` it goes wrong."""

    num_controls = 2

    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.head, self.how = nn.Linear(1, 4), how

    def controls(self, images: Tensor) -> Any:
        mode, concentration = self.head(images.mean((2, 3))).chunk(2, dim=1)
        if self.how == "one":
            return mode.sigmoid()
        return mode.sigmoid() + 2 * (self.how == "mode"), 10 * concentration.exp() * (
            -1 if self.how == "concentration" else 1
        )

    def forward(self, images: Tensor, controls: Any = None) -> Any:
        found = super().forward(images)
        if self.how == "ignored":
            return found
        if controls is None and self.how == "other":
            return found
        gates = (
            controls
            if controls is not None
            else self.controls(images)[0]
            if self.how != "one"
            else torch.ones(1, 2).to(images)
        )
        return found * gates[:, :1, None, None] + images * gates[:, 1:, None, None]


class InPlace(Plain):
    def forward(self, images: Tensor) -> Any:
        images.mul_(0.5)
        return super().forward(images)


class Halving(Plain):
    """Fails where a side is no multiple of 16."""

    def inside(self, value: Tensor) -> Tensor:
        return value + nn.functional.interpolate(nn.functional.avg_pool2d(value, 16), scale_factor=16)


class Attending(nn.Module):
    """A transformer layer as torch ships it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 8, 2, stride=2), nn.ConvTranspose2d(8, 1, 2, stride=2)
        self.inside = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)

    def forward(self, images: Tensor) -> Any:
        value = self.first(images)
        return images + self.last(self.inside(value.flatten(2).mT).mT.unflatten(2, value.shape[2:]))


class Standardised(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.conv2d(input, self.weight / self.weight.std(), self.bias, padding=1)


class WeightNormed(Plain):
    """One layer's weight is made anew at every call; `how` torch does it, as it did and as it does, or a layer of one's
    own.
    """

    def __init__(self, how: str) -> None:
        super().__init__()
        norm = {"old": nn.utils.spectral_norm, "new": nn.utils.parametrizations.weight_norm}
        self.first = norm[how](self.first) if how in norm else Standardised(1, 4, 3)
