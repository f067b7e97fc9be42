"""Draws a metric over the steps that sample, one line a run: `python docs/curve.py reward runs/a runs/b >
curve.svg`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 260, 40, 30
COLOURS = ("#1b6ca8", "#c8553d", "#588157", "#6d597a")


def read(folder: Path, metric: str) -> list[float]:
    """The metric at every step that has it, in order."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [row[metric] for row in rows if metric in row]


def draw(metric: str, curves: Sequence[tuple[str, Sequence[float]]]) -> str:
    """The curves as SVG, from 0 (or below) to 1 (or above)."""
    values = [value for _, curve in curves for value in curve]
    low, high, last = min(0.0, *values), max(1.0, *values), max(len(curve) for _, curve in curves)

    def x(step: int) -> float:
        return LEFT + (WIDTH - LEFT - 10) * step / max(last - 1, 1)

    def y(value: float) -> float:
        return 10 + (HEIGHT - BOTTOM - 10) * (high - value) / (high - low)

    shapes = [f'<text x="{LEFT}" y="{HEIGHT - 4}">{metric} over {last} steps</text>']
    for tick in (low, (low + high) / 2, high):
        shapes.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ccc"/><text x="4"'
            f' y="{y(tick) + 4:.1f}">{tick:.2f}</text>'
        )
    for place, (name, curve) in enumerate(curves):
        colour = COLOURS[place % len(COLOURS)]
        points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in enumerate(curve))
        shapes.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        shapes.append(f'<text x="{WIDTH - 110}" y="{HEIGHT - BOTTOM - 14 - 16 * place}" fill="{colour}">{name}</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="12">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *shapes, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(
        draw(sys.argv[1], [(Path(folder).name, read(Path(folder), sys.argv[1])) for folder in sys.argv[2:]])
    )
