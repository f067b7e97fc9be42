"""Passes images of any size through a network: small ones together, large ones in overlapping tiles."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from groupwise.domain.pass_sizes import EVALUATION, PassSizes
from groupwise_images.restoration.config import TileConfig


def restore(
    module: nn.Module,
    images: Sequence[np.ndarray],
    tile: TileConfig,
    passes: PassSizes,
    device: torch.device,
    dtype: torch.dtype,
    scale: int = 1,
) -> list[np.ndarray]:
    """Computes the network's output for each image, clamped to [0, 1], fp32 `[C, scale H, scale W]`; NaN where the
    output is infinite.

    Args:
        images: fp32 `[C, H, W]` each, of any sizes.
        tile: how large images are cut.
        passes: images (or tiles) at once.
        device, dtype: of the network.
        scale: how many times larger than its input's the sides of its output are.
    """
    small = [place for place, image in enumerate(images) if max(image.shape[1:]) <= tile.size]
    restored: dict[int, np.ndarray] = {}
    for shape in sorted({images[place].shape for place in small}):
        same_shape = [place for place in small if images[place].shape == shape]

        def restored_batch(places: Tensor) -> np.ndarray:
            batch = torch.from_numpy(np.stack([images[place] for place in places.tolist()]))
            return _clamped(_padded(module, batch.to(device=device, dtype=dtype), tile.multiple, scale))

        outputs = passes.join(EVALUATION, restored_batch, torch.tensor(same_shape))
        restored |= dict(zip(same_shape, (image for batch in outputs for image in batch), strict=True))
    for place, image in enumerate(images):
        if place not in restored:
            tensor = torch.from_numpy(np.ascontiguousarray(image)).to(device=device, dtype=dtype)
            restored[place] = _clamped(restore_tiled(module, tensor, tile, passes, scale))
    return [restored[place] for place in range(len(images))]


def restore_tiled(
    module: nn.Module, image: Tensor, tile: TileConfig, passes: PassSizes | None = None, scale: int = 1
) -> Tensor:
    """Passes one image `[C, H, W]` through the network in tiles; where tiles overlap, their outputs are blended.

    The outer quarter of an overlap, where a tile does not see enough of the image, counts for nothing; from there
    weights rise. A network of which a pixel depends on no other further away than `tile.overlap // 4` gives exactly
    what it gives for the whole image, up to rounding.

    Args:
        passes: tiles at once; unset takes them one by one.
    """
    height, width = image.shape[1:]
    corners = [(top, left) for top in _starts(height, tile) for left in _starts(width, tile)]
    # Sums of half precision would show where tiles meet.
    sum_of = image.new_zeros(
        (len(image), height * scale, width * scale), dtype=torch.promote_types(image.dtype, torch.float32)
    )
    weight_of = torch.zeros_like(sum_of[:1])

    def restored_tiles(places: Tensor) -> Tensor:
        chosen = [corners[place] for place in places.tolist()]
        parts = torch.stack([image[:, top : top + tile.size, left : left + tile.size] for top, left in chosen])
        return _padded(module, parts, tile.multiple, scale)

    outputs = (passes or PassSizes()).each(EVALUATION, restored_tiles, torch.arange(len(corners)))
    for (top, left), output in zip(corners, (tile_output for batch in outputs for tile_output in batch), strict=True):
        top, left, overlap = top * scale, left * scale, tile.overlap * scale
        window = _window(top, output.shape[1], height * scale, overlap, sum_of)[:, None] * _window(
            left, output.shape[2], width * scale, overlap, sum_of
        )
        place = (slice(None), slice(top, top + output.shape[1]), slice(left, left + output.shape[2]))
        sum_of[place] += window * output
        weight_of[place] += window
    return sum_of / weight_of


def input_sizes(height: int, width: int, tile: TileConfig) -> set[tuple[int, int]]:
    """Returns the height and width of the network's inputs for an image.

    Example:
        >>> input_sizes(61, 300, TileConfig(size=256, multiple=8))
        {(64, 256)}
    """
    return {tuple(side + -side % tile.multiple for side in (min(height, tile.size), min(width, tile.size)))}  # type: ignore[arg-type]


def _clamped(output: Tensor) -> np.ndarray:
    return torch.where(output.isfinite(), output.clamp(0, 1), torch.nan).float().cpu().numpy()


def _padded(module: nn.Module, images: Tensor, multiple: int, scale: int) -> Tensor:
    """Computes the output for `[N, C, H, W]`, with the edge repeated until the sides are multiples, and cuts it
    again.
    """
    height, width = images.shape[2:]
    if height % multiple == 0 and width % multiple == 0:
        return module(images)
    return module(functional.pad(images, (0, -width % multiple, 0, -height % multiple), mode="replicate"))[
        :, :, : height * scale, : width * scale
    ]


def _starts(length: int, tile: TileConfig) -> list[int]:
    """Lists the places where tiles begin, the last one flush with the edge.

    Example:
        >>> _starts(20, TileConfig(size=8, overlap=2))
        [0, 6, 12]
    """
    if length <= tile.size:
        return [0]
    step = tile.size - tile.overlap
    return [*range(0, length - tile.size, step), length - tile.size]


def _window(start: int, length: int, total: int, overlap: int, like: Tensor) -> Tensor:
    """Computes weights along one side of a tile: 0 over a quarter of the overlap, rising to 1 over its middle half; at
    the image's own edge 1 throughout.
    """
    place = torch.arange(length, device=like.device, dtype=like.dtype)
    margin = overlap // 4
    weights = torch.ones_like(place)
    for distance, inside in ((place, start > 0), (place.flip(0), start + length < total)):
        if inside:
            weights = torch.minimum(weights, ((distance + 1 - margin) / (overlap - 2 * margin + 1)).clamp(0, 1))
    return weights
