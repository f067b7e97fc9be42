"""The prompts that a pipeline's adapter is tested with: texts, or texts with images made here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from groupwise.config import ConfigError
from groupwise.domain.diffusion.pipeline_adapter import INSTRUCTION, PipelineAdapter
from groupwise.domain.diffusion.prompt_image import PromptImage, without_images

IMAGE = "degraded"
"""The column of a prompt's image."""

Rows = list[dict[str, Any]]


def rows_of(prompts: Sequence[str | Mapping[str, Any]], takes_image: bool) -> Rows:
    """Returns prompts as columns; where prompts are images, a text is what is asked for beside one.

    Example:
        >>> rows_of(["a cat"], False), rows_of(["a cat"], True)
        ([{'prompt': 'a cat'}], [{'instruction': 'a cat', 'prompt': 'image 0'}])
    """
    column = INSTRUCTION if takes_image else "prompt"
    rows = [{column: row} if isinstance(row, str) else dict(row) for row in prompts]
    return [{**row, "prompt": f"image {place}"} if takes_image else row for place, row in enumerate(rows)]


def with_images(rows: Rows, shape: Sequence[int]) -> Rows:
    """Gives each prompt that has none an image of random pixels, such as a file may hold.

    Args:
        rows: the prompts.
        shape: of an image, `[C, H, W]`.
    """
    generator = torch.Generator().manual_seed(2)
    pixels = [torch.randint(0, 256, tuple(shape), generator=generator).float() / 255 for _ in rows]
    return [{IMAGE: PromptImage(image.numpy()), **row} for image, row in zip(pixels, rows, strict=True)]


def exchanged(rows: Rows, image: bool) -> Rows:
    """Exchanges the images of two prompts, or everything else.

    Args:
        rows: two prompts.
        image: whether images are exchanged.
    """
    first, second = ({name: value for name, value in row.items() if (name == IMAGE) == image} for row in rows)
    return [{**rows[0], **second}, {**rows[1], **first}]


def reads_words(adapter: PipelineAdapter, pipe: Any, row: Mapping[str, Any]) -> bool:
    """Tests whether an adapter that takes an image refuses a prompt with nothing beside it."""
    try:
        adapter.check(pipe, [{"prompt": row["prompt"], IMAGE: row[IMAGE]}])
    except ConfigError:
        return True
    return False


def as_source(rows: Rows, folder: Path) -> dict[str, Any]:
    """Writes prompts as files and returns the source that reads them, in this order.

    Args:
        rows: two prompts, all with an image or none.
        folder: where the files are written.
    """
    table = folder / "prompts.jsonl"
    if IMAGE not in rows[0]:
        lines = [{"prompt": f"prompt {place}"} | row for place, row in enumerate(rows)]
        table.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return {"kind": "prompts", "path": str(table)}
    from PIL import Image

    lines = []
    # The one in the middle is held out.
    for place, row in enumerate((rows[0], rows[0], rows[1])):
        Image.fromarray(row[IMAGE].picture.numpy()).save(folder / f"{place}.png")
        columns = {name: value for name, value in without_images(row).items() if name != "prompt"}
        lines.append({**columns, "image": f"{place}.png"})
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {"kind": "image_pairs", "images": {"kind": "table", "path": str(table), "num_held_out": 1}}
