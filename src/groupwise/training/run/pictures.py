"""Images in records: each is written as a PNG file beside the records, and its path replaces it in the record."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from groupwise.checkpoint.atomic import write_file
from groupwise.domain.pictures import is_picture


def write_pictures(folder: Path, pictures: Mapping[str, Tensor]) -> list[Path]:
    """Writes `folder/NAME.png` for every picture and returns the files, in order.

    Args:
        folder: the folder of the files, which is made for the first picture.
        pictures: `uint8` tensors, `[H, W]` or `[H, W, 3]`.

    Raises:
        ValueError: a picture has another type or shape.
    """
    files = []
    for name, picture in pictures.items():
        folder.mkdir(parents=True, exist_ok=True)
        files.append(folder / f"{name}.png")
        # Pictures are not needed for a resume. Waiting for the disk hundreds of times a step took longer than the step.
        write_file(files[-1], _png(picture, name), durable=False)
    return files


def with_files(records: Sequence[Mapping[str, Any]], folder: Path, root: Path) -> list[dict[str, Any]]:
    """Writes every image in the records to `folder/NUMBER-KEY.png`, and returns the records with the path in place of
    the image, relative to `root`.

    Args:
        records: records whose values may be images.
        folder: the folder of the image files.
        root: the run folder; a moved run folder keeps valid paths.
    """
    records_with_paths = []
    for number, record in enumerate(records):
        images = {key: value for key, value in record.items() if isinstance(value, Tensor)}
        files = write_pictures(folder, {f"{number}-{key}": image for key, image in images.items()})
        records_with_paths.append(
            {**record, **{key: os.path.relpath(file, root) for key, file in zip(images, files, strict=True)}}
        )
    return records_with_paths


def _png(picture: Tensor, name: str) -> bytes:
    if not is_picture(picture):
        raise ValueError(
            f"picture {name!r}: {picture.dtype} {tuple(picture.shape)}; a picture is torch.uint8 of shape [H, W] or [H,"
            " W, 3]"
        )
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture.cpu().numpy()).save(buffer, format="PNG")
    return buffer.getvalue()
