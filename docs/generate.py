"""Pages that are read off the code and its data, so that they cannot differ from it: a hook of mkdocs, run by `make
docs`.

Methods (`presets/methods/*.toml`), keys of other systems (`presets/keys/*.toml`), what the original's order costs, the
keys of an experiment, the Python API and the command line. Nothing is written into the tree.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import conformance
import ordering
from command_pages import command_pages
from equations import draw_equations
from key_pages import experiment_pages, objective_pages, reward_pages, system_pages
from method_pages import method_index, method_page, overlay_page, own_metrics
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from python_pages import python_pages

__all__ = ["method_index", "method_page", "own_metrics", "pages"]

DOCS = Path(__file__).resolve().parent
KEYS = DOCS.parent / "src" / "groupwise" / "presets" / "keys"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the generated pages into the navigation, where it names a folder of them, and the project's addresses into
    the site.
    """
    urls = addresses()
    config.site_url, config.repo_url = urls.get("Documentation"), urls.get("Repository")
    config.nav = _with_folders(config.nav or [], dict(pages()))
    return config


def addresses() -> dict[str, str]:
    """The addresses of the project, which are written in `pyproject.toml` alone; none while it has no public place."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {})


def _with_folders(navigation: list[Any], texts: dict[str, str]) -> list[Any]:
    entries = []
    for entry in navigation:
        if not isinstance(entry, dict):
            entries.append(entry)
            continue
        ((title, target),) = entry.items()
        if isinstance(target, list):
            entries.append({title: _with_folders(target, texts)})
        elif target.endswith("/"):
            index = target if f"{target}index.md" in texts else f"{target[:-1]}.md"
            first = f"{target}index.md" if f"{target}index.md" in texts else index
            inside = [path for path in texts if path.startswith(target) and path != first]
            entries.append({title: [{"Overview": first}, *({_title(texts[path]): path} for path in inside)]})
        else:
            entries.append(entry)
    return entries


def _title(text: str) -> str:
    return re.sub(r"[`\[\]]", "", text.partition("\n")[0].lstrip("# ").strip())


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Joins the generated pages to those that were written."""
    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page | None = None, **_: Any) -> str:
    """Draws the equations of a page, and leads its links to a source to the page that is generated from it: on a code
    host there is only the source.
    """
    if page is not None:
        folder = (DOCS / page.file.src_uri).parent
        markdown = re.sub(r"\]\((\.[^)#\s]+)", lambda link: f"]({generated_from(folder, link[1])}", markdown)
    return draw_equations(markdown)


_SOURCES = {
    "src/groupwise/presets/methods": "methods/index.md",
    "src/groupwise/reward": "reference/rewards.md",
    "src/groupwise/objective": "reference/objective.md",
    "src/groupwise/experiment/schema.py": "reference/experiment.md",
    "src/groupwise/__init__.py": "reference/python.md",
    "src/groupwise/cli": "reference/command_line.md",
    "docs/ordering.py": "guide/order_of_weights.md",
    "docs/conformance.py": "guide/conformance.md",
}


def generated_from(folder: Path, link: str) -> str:
    """Returns the link from a page in a folder to the page that is generated from a source; other links stay.

    Example:
        >>> generated_from(DOCS / "guide", "../../src/groupwise/presets/methods/dapo.toml")
        '../methods/dapo.md'
    """
    source = Path(os.path.normpath(folder / link)).relative_to(DOCS.parent).as_posix()
    target = _SOURCES.get(source)
    if found := re.fullmatch(r"src/groupwise/presets/(methods|overlays|keys)/(\w+)\.toml", source):
        target = f"{'tables' if found[1] == 'keys' else 'methods'}/{found[2]}.md"
    return link if target is None else os.path.relpath(DOCS / target, folder)


def pages() -> Iterator[tuple[str, str]]:
    """Yields path and Markdown of every generated page."""
    from groupwise.objective.preset import method_names, overlay_names

    yield "methods/index.md", method_index()
    for name in method_names():
        yield f"methods/{name}.md", method_page(name)
    for name in overlay_names():
        yield f"methods/{name}.md", overlay_page(name)
    for file in sorted(KEYS.glob("*.toml")):
        yield from system_pages(file.stem, tomllib.loads(file.read_text(encoding="utf-8")))
    yield "guide/order_of_weights.md", ordering.page()
    yield "guide/conformance.md", conformance.page()
    yield from experiment_pages()
    yield from objective_pages()
    yield from reward_pages()
    yield from python_pages()
    yield from command_pages()
