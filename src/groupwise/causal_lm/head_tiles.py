"""The sizes in which the head of a language model computes its logits, by device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import torch


@final
@dataclass(frozen=True)
class Tiles:
    """Sizes of what the head computes at a time.

    Args:
        block_tokens: tokens of the vocabulary in a tile.
        tile_elements: logits in a tile.
        memory_bytes: bound on the logits that are kept at a time.
        whole: whether this memory is taken for few positions as for many, so that a pass of a few members, which is
            measured, holds as much of it as every other pass.
    """

    block_tokens: int
    tile_elements: int
    memory_bytes: int
    whole: bool = False

    def rows(self, most: int, num: int) -> int:
        """Returns the rows of a buffer that holds `most` at a time, of `num` in all."""
        return max(1, most if self.whole else min(most, num))

    def held(self, num: float, vocabulary: int) -> float:
        """Returns the bytes of logits that an update keeps at a time, together with the tile, in fp32.

        Args:
            num: positions of a pass.
        """
        row = 4 * (vocabulary + min(self.block_tokens, vocabulary))
        return row * self.rows(self.memory_bytes // (4 * vocabulary), round(num))


CPU_TILES = Tiles(2048, 2**21, 192 * 2**20)
"""A tile stays in the caches of a core; measured with benchmarks/head.py."""

GPU_TILES = Tiles(2**14, 2**25, 5 * 2**28, whole=True)
"""A GPU computes a small tile in less time than the host takes to start its forty kernels."""


def choose_tiles(device_type: str, free_bytes: float) -> Tiles:
    """Chooses the tiles of a device: those of a GPU on CUDA, where a quarter of the free memory holds them.

    Args:
        free_bytes: the memory of the device that is free.

    Example:
        >>> [choose_tiles(kind, free * 2**30).block_tokens for kind, free in (("cuda", 60), ("cuda", 4), ("cpu", 60))]
        [16384, 2048, 2048]
    """
    fits = device_type == "cuda" and 4 * GPU_TILES.memory_bytes <= free_bytes
    return GPU_TILES if fits else CPU_TILES


@cache
def tiles_of(device: torch.device) -> Tiles:
    """Returns the tiles of a device, which are chosen once per process, because another size would change rounding."""
    from groupwise.memory import available_bytes

    return choose_tiles(device.type, available_bytes(device, None) if device.type == "cuda" else 0)
