"""Draws the first run for README: the lines that the command printed, beside the report's groups.

    groupwise train language --out RUN | tee LINES && python docs/first_run.py RUN LINES docs/first-run.png

Chromium takes the picture.
"""

from __future__ import annotations

import base64
import io
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

from PIL import Image

from groupwise.runs import read_run
from groupwise_look.report.page import render

STEPS = (600, 601, 605, 610, 620, 640, 680)
STYLE = (
    "body{margin:0;width:1280px;display:flex;gap:16px;background:#fff;font:13px/1.55 ui-monospace,Menlo,monospace}"
    "pre{margin:0;flex:0 0 560px;box-sizing:border-box;padding:16px 18px;background:#1e1e2e;color:#e6e6e6;"
    "border-radius:8px;white-space:pre-wrap;font:inherit}b{color:#8bd5a0;font-weight:400}img{width:704px}"
)


def photograph(page: str, width: int, height: int) -> Image.Image:
    """Returns the picture of a page in a window of this size, two pixels a point."""
    with tempfile.TemporaryDirectory() as folder:
        path, picture = Path(folder, "page.html"), Path(folder, "page.png")
        path.write_text(page, encoding="utf-8")
        command = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--force-device-scale-factor=2"]
        command += [f"--window-size={width},{height}", f"--screenshot={picture}", path.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        return Image.open(io.BytesIO(picture.read_bytes())).convert("RGB")


def main(run: Path, lines: Path, out: Path) -> None:
    printed = lines.read_text(encoding="utf-8")
    # Seconds differ from machine to machine.
    steps = [
        re.sub(r"  [\d.]+ s$", "", line)
        for line in printed.splitlines()
        if (found := re.match(r"step (\d+)/", line)) and int(found[1]) in STEPS
    ]
    result = printed[printed.index("\nHeld-out ") : printed.index("\nRun folder")]
    result = "\n\n".join(re.sub(r"\n\d+ steps, .*\n", "\n", result).split("\n\n")[:3])
    report = render([read_run(run)]).decode("utf-8")
    for part in ("results", "curves", "findings", "configuration"):
        report = report.replace(f'<section id="{part}"', f'<section hidden id="{part}"')
    groups = io.BytesIO()
    photograph(report.replace('<header class="top"', '<header hidden class="top"'), 880, 760).save(groups, "png")
    picture = base64.b64encode(groups.getvalue()).decode()
    text = f"<b>$ groupwise train language</b>\n{escape(chr(10).join(steps))}\n{escape(result)}"
    page = f"<meta charset=utf-8><style>{STYLE}</style><pre>{text}</pre><img src='data:image/png;base64,{picture}'>"
    photograph(page, 1280, 620).quantize(128).save(out, optimize=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
