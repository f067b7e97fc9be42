"""Images among records: each is written as a PNG file beside them, and its place takes its place in the record."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from groupwise.checkpoint.atomic import write_file


def write_pictures(folder: Path, pictures: Mapping[str, Tensor]) -> list[Path]:
    """Writes `folder/NAME.png` for every picture and returns the files, in order.

    Args:
        folder: made when there is something to write.
        pictures: `uint8` tensors, `[H, W]` or `[H, W, 3]`.

    Raises:
        ValueError: a picture of another type or shape.
    """
    files = []
    for name, picture in pictures.items():
        folder.mkdir(parents=True, exist_ok=True)
        files.append(folder / f"{name}.png")
        # They are for people to look at: waiting for the disk, hundreds of times a step, took longer than the step.
        write_file(files[-1], _png(picture, name), durable=False)
    return files


def with_files(records: Sequence[Mapping[str, Any]], folder: Path, root: Path) -> list[dict[str, Any]]:
    """The records with every image in them written to `folder/NUMBER-KEY.png` and replaced by that path, relative to
    `root`.

    Args:
        records: some values may be images.
        folder: where the files go.
        root: the run folder, which may be moved as a whole.
    """
    written = []
    for number, record in enumerate(records):
        images = {key: value for key, value in record.items() if isinstance(value, Tensor)}
        files = write_pictures(folder, {f"{number}-{key}": image for key, image in images.items()})
        written.append(
            {**record, **{key: os.path.relpath(file, root) for key, file in zip(images, files, strict=True)}}
        )
    return written


def _png(picture: Tensor, name: str) -> bytes:
    if picture.dtype != torch.uint8 or not (picture.dim() == 2 or (picture.dim() == 3 and picture.shape[2] == 3)):
        raise ValueError(
            f"picture {name!r}: {picture.dtype} {tuple(picture.shape)}; a picture is torch.uint8 of shape [H, W] or [H,"
            " W, 3]"
        )
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture.cpu().numpy()).save(buffer, format="PNG")
    return buffer.getvalue()
