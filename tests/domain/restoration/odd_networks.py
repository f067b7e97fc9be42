"""Networks as users write them: some that suit, and many that do not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Plain(nn.Module):
    """What a restoration network is: an image in, an image out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, images: Tensor) -> Any:
        return images + self.last(self.inside(self.first(images)))

    def inside(self, value: Tensor) -> Tensor:
        return value.relu()


class Oddly(nn.Module):
    """Layers by names of the user's own; one of several groups ends as another is called."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.body = nn.Conv2d(1, 6, 3, padding=1), nn.ModuleDict({"a": nn.Conv2d(6, 6, 3, padding=1, groups=3), "z": nn.Conv2d(6, 1, 1)})

    def forward(self, images: Tensor) -> Any:
        return images + self.body["z"](self.body["a"](self.a(images)))


class Normalised(Plain):
    """Batch normalisation and dropout: another network while it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer("scale", torch.ones(4, 1, 1))

    def inside(self, value: Tensor) -> Tensor:
        return nn.functional.dropout(self.norm(value), 0.5, self.training) * self.scale


class Recomputed(Normalised):
    """As large networks do to save memory."""

    def inside(self, value: Tensor) -> Tensor:
        return checkpoint(super().inside, value, use_reentrant=False)


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


class InPlace(Plain):
    def forward(self, images: Tensor) -> Any:
        images.mul_(0.5)
        return super().forward(images)


class Halving(Plain):
    """Fails where a side is no multiple of 16."""

    def inside(self, value: Tensor) -> Tensor:
        return value + nn.functional.interpolate(nn.functional.avg_pool2d(value, 16), scale_factor=16)
