"""A restoration network whose passes take as many images as fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from groupwise.domain.joined_rows import joined, joined_rows
from groupwise.domain.pass_sizes import PassSizes


@final
class CutNetwork(nn.Module):
    """Calls a network on a few images at a time; in evaluation mode the outputs are those of one call, up to rounding.

    Args:
        network: maps images `[N, C, H, W]`, each by itself.
        passes: images in a pass, with gradient and without.

    Example:
        >>> passes = PassSizes({"sampling": 2, "update": 2})
        >>> CutNetwork(nn.Flatten(), passes)(torch.zeros(5, 1, 2, 2)).shape
        torch.Size([5, 4])
    """

    def __init__(self, network: nn.Module, passes: PassSizes) -> None:
        super().__init__()
        self._network, self._passes = network, passes

    def forward(self, images: Tensor, controls: Tensor | None = None) -> Tensor:
        """Restores images, with other control parameters than its own where they are given."""

        def restore(rows: Tensor) -> Tensor:
            settings = {} if controls is None else {"controls": controls[rows]}
            return self._network(images[rows], **settings)

        return joined(self._parts(restore, images), len(images))

    def controls(self, images: Tensor) -> tuple[Tensor, ...]:
        """Returns the mode and the concentration of every control parameter, of each image."""
        names = ("mode", "concentration")
        parts = self._parts(
            lambda rows: dict(zip(names, cast(Any, self._network).controls(images[rows]), strict=True)), images
        )
        return tuple(joined_rows(parts, len(images)).values())

    def _parts(self, compute: Callable[[Tensor], Any], images: Tensor) -> Iterable[Any]:
        return self._passes.apply(compute, torch.arange(len(images), device=images.device))
