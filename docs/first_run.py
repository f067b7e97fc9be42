"""Draws the first run as an animated picture: `python docs/first_run.py RUN > docs/first-run.svg`.

The terminal's lines appear while the curve of the reward grows. Without animation, as where motion is unwanted, the
picture stands whole.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, SPLIT, SECONDS = 960, 310, 520, 6.0


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Reads the metrics of a run."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def answers(folder: Path) -> tuple[str, str, str]:
    """Returns the first prompt of the evaluation that was answered wrongly before and rightly after."""
    first, last = _evaluations(folder)
    for key, before in first.items():
        if key in last and before["rewards"]["correct"] < last[key]["rewards"]["correct"]:
            return before["prompt"], before["text"], last[key]["text"]
    raise ValueError(f"{folder}: no prompt of the recorded evaluations got better")


def _evaluations(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    files = sorted((folder / "rollouts").glob("evaluation-*.jsonl"), key=lambda path: int(path.stem.split("-")[1]))
    sampled = next(row["step"] for row in rows_of(folder) if "reward" in row)
    before = max((path for path in files if int(path.stem.split("-")[1]) < sampled), key=files.index)
    read = [
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in (before, files[-1])
    ]
    first, last = (
        {row["key"]: row for row in reversed(rows) if "prompt" in row and row.get("mode") == "greedy"} for rows in read
    )
    return first, last


def draw(lines: Sequence[str], curve: Sequence[float], held_out: Sequence[tuple[int, float]]) -> str:
    """Draws the terminal's lines at the left, the curve of the reward at the right."""
    left, right, top, bottom = SPLIT + 50, WIDTH - 24, 44, HEIGHT - 40

    def place(step: float, value: float) -> str:
        x = left + (right - left) * step / max(len(curve) - 1, 1)
        return f"{x:.1f},{bottom - (bottom - top) * value:.1f}"

    shapes = []
    for number, line in enumerate(lines):
        delay = SECONDS * number / max(len(lines), 1)
        colour = "#8bd5a0" if line.startswith("$") else "#e6e6e6"
        shapes.append(
            f'<text class="line" style="animation-delay:{delay:.2f}s" x="20" y="{48 + 21 * number}" fill="{colour}"'
            f' xml:space="preserve">{escape(line)}</text>'
        )
    for value in (0.0, 0.5, 1.0):
        _, y = place(0, value).split(",")
        shapes.append(f'<line x1="{left}" x2="{right}" y1="{y}" y2="{y}" stroke="#bbb" stroke-width=".5"/>')
        shapes.append(f'<text class="axis" x="{left - 30}" y="{float(y) + 4:.1f}">{value:.1f}</text>')
    points = " ".join(place(step, value) for step, value in enumerate(curve))
    shapes.append(f'<polyline class="curve" pathLength="1" points="{points}"/>')
    for step, value in held_out:
        x, y = place(step, value).split(",")
        shapes.append(f'<circle cx="{x}" cy="{y}" r="4" fill="#c8553d"/>')
    shapes.append(f'<text class="axis" x="{left}" y="26" style="fill:#1b6ca8">mean reward of the samples</text>')
    shapes.append(f'<text class="axis" x="{left + 200}" y="26" style="fill:#c8553d">● held-out accuracy</text>')
    shapes.append(f'<text class="axis" x="{left}" y="{HEIGHT - 14}">{len(curve)} steps of GRPO</text>')
    style = (
        "text{font:14px ui-monospace,Menlo,Consolas,monospace}.axis{font:13px sans-serif;fill:#555}"
        ".curve{fill:none;stroke:#1b6ca8;stroke-width:2}"
        "@media (prefers-reduced-motion:no-preference){"
        ".line{opacity:0;animation:appear .2s forwards}"
        f".curve{{stroke-dasharray:1;stroke-dashoffset:1;animation:grow {SECONDS}s .5s linear forwards}}}}"
        "@keyframes appear{to{opacity:1}}@keyframes grow{to{stroke-dashoffset:0}}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            "<title>A first run: the terminal, and the reward rising over 80 steps</title>",
            f"<style>{style}</style>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="white"/>',
            f'<rect x="0" y="0" width="{SPLIT}" height="{HEIGHT}" rx="8" fill="#1e1e2e"/>',
            *shapes,
            "</svg>\n",
        ]
    )


def picture(folder: Path) -> str:
    """Draws a run from its folder."""
    rows = [row for row in rows_of(folder) if "reward" in row]
    before = [row for row in rows_of(folder) if "reward" not in row and "eval/greedy/correct" in row][-1]
    start = rows[0]["step"]
    held_out = [(0, before["eval/greedy/correct"])]
    held_out += [(row["step"] - start, row["eval/greedy/correct"]) for row in rows if "eval/greedy/correct" in row]
    prompt, wrong, right = answers(folder)
    lines = ["$ groupwise train language", f"held-out accuracy {held_out[0][1]:.3f} before the reward"]
    lines += [
        f"step {row['step'] - start + 1:>2}/80  reward {row['reward']:.3f}"
        for row in rows
        if row["step"] - start in (0, 4, 9, 19, 39)
    ]
    lines += [
        f"held-out accuracy {held_out[-1][1]:.3f}",
        "",
        f"prompt  {prompt}",
        f"before  {wrong}",
        f"after   {right}",
    ]
    return draw(lines, [row["reward"] for row in rows], held_out)


if __name__ == "__main__":
    sys.stdout.write(picture(Path(sys.argv[1])))
