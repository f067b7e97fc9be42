"""Writes the tutorials of the four domains as notebooks: `python docs/notebooks.py FOLDER`.

A page is the source, so that a notebook cannot differ from it: prose becomes Markdown, a block of Python a cell, a
command a cell of the shell, and a block with a title the file of that name.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).resolve().parent / "tutorials"
NAMES = ("language", "diffusion", "restoration", "selection")
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```\n', re.MULTILINE | re.DOTALL)


def notebook(page: str) -> dict[str, Any]:
    """Turns a page into a notebook of format 4.5."""
    cells: list[dict[str, Any]] = []
    place = 0
    for match in _BLOCK.finditer(page):
        language, title, body = match.groups()
        code = _code(language, title, body)
        if code is None:
            continue
        _add(cells, "markdown", page[place : match.start()])
        _add(cells, "code", code)
        place = match.end()
    _add(cells, "markdown", page[place:])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _code(language: str, title: str | None, body: str) -> str | None:
    """Returns the cell of a block; None where the block is output or an example to read."""
    if title:
        return f"%%writefile {title}\n{body}"
    if language == "python":
        return body
    if language == "bash":
        return "".join(f"!{line.partition(' #')[0].rstrip()}\n" for line in body.splitlines() if line)
    return None


def _add(cells: list[dict[str, Any]], kind: str, text: str) -> None:
    if not text.strip():
        return
    cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}, "source": text.strip("\n")}
    cells.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))


def write(folder: Path) -> list[Path]:
    """Writes all notebooks into a folder, with the pictures of their pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in TUTORIALS.glob("*.png"):
        (folder / picture.name).write_bytes(picture.read_bytes())
    paths = []
    for name in NAMES:
        page = (TUTORIALS / f"{name}.md").read_text(encoding="utf-8")
        paths.append(folder / f"{name}.ipynb")
        paths[-1].write_text(json.dumps(notebook(page), indent=1) + "\n", encoding="utf-8")
    return paths


if __name__ == "__main__":
    for path in write(Path(sys.argv[1])):
        print(path)
