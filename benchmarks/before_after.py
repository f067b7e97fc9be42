"""One picture of two evaluations of a run whose prompts are images: input, before, after, target, with what was read.

    python benchmarks/before_after.py RUN FIRST_STEP LAST_STEP OUT.png

The evaluations are those of `RUN/rollouts/evaluation-STEP/images.png`, of the same images and noise.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image, ImageDraw

from groupwise_images.image_evaluation import ROWS

GAP, MARGIN = 2, 52


def composed(first: Image.Image, last: Image.Image) -> Image.Image:
    """Returns the rows of both pictures as one: what was given, before, after, the target.

    Args:
        first, last: three rows each, with what was read below all of them.
    """
    pitch = (first.height + GAP) // len(ROWS)
    canvas = Image.new("RGB", (first.width, first.height + pitch), "white")
    draw = ImageDraw.Draw(canvas)
    rows = [("input", first, 0), ("before", first, 1), ("after", last, 1), ("target", last, 2)]
    for place, (name, picture, row) in enumerate(rows):
        canvas.paste(picture.crop((MARGIN, row * pitch, picture.width, (row + 1) * pitch)), (MARGIN, place * pitch))
        draw.text((2, place * pitch + (pitch - 2 * GAP) // 2 - 14), name, fill="black")
    return canvas


def main(arguments: list[str]) -> None:
    """Writes the picture."""
    run, first, last, out = arguments
    pictures = [
        Image.open(Path(run) / f"rollouts/evaluation-{step}/images.png").convert("RGB") for step in (first, last)
    ]
    composed(*pictures).save(out)


if __name__ == "__main__":
    main(sys.argv[1:])
