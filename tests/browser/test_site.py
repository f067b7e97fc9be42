"""The documentation as it is built: found by its search, readable on a phone, its front page on one screen."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[2]
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1400, "height": 900}
LONGEST = 8_000
"""Pixels that a page of the reference is high at most."""
pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(reduced_motion="reduce")
    yield context.new_page()
    context.close()


def shown(tab: Page, page: Path, size: dict[str, int]) -> Page:
    tab.set_viewport_size({"width": size["width"], "height": size["height"]})
    tab.goto(page.as_uri(), wait_until="load")
    return tab


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("out of memory", "how_to/out_of_memory/"),
        ("custom reward", "how_to/custom_reward/"),
        ("multi-gpu", "how_to/several_gpus/"),
        ("quickstart", "tutorials/"),
        ("tutorial", "tutorials/language/"),
        ("reward hacking", "how_to/reward_hacking/"),
        ("verl", "how_to/from_verl/"),
        ("deploy", "how_to/deploy/"),
    ],
)
def test_the_search_finds_the_page(site: Path, words: str, page: str) -> None:
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    separator = re.compile(index["config"]["separator"])

    def terms(text: str) -> set[str]:
        """Cuts and trims a text as the page's search does."""
        return {word.strip(".,:;!?()[]'\"") for word in separator.split(re.sub("<.*?>", " ", text).lower())} - {""}

    hits = {
        entry["location"].partition("#")[0]
        for entry in index["docs"]
        if terms(words) <= terms(f"{entry['title']} {entry['text']}")
    }
    assert page in hits


def test_no_equation_is_wider_than_a_phone(site: Path, tab: Page) -> None:
    pages = [page for page in sorted(site.rglob("index.html")) if 'class="equation"' in page.read_text("utf-8")]
    assert len(pages) > 40
    for page in pages:
        shown(tab, page, PHONE)
        edges = tab.evaluate(
            "[...document.querySelectorAll('.equation math')].map(drawn => drawn.getBoundingClientRect())"
            ".map(box => [box.left, box.right])"
        )
        assert min(left for left, _ in edges) >= 0, page.parent.name
        assert max(right for _, right in edges) <= PHONE["width"], page.parent.name
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], page.parent.name


def test_no_page_of_the_reference_is_endless(site: Path, tab: Page) -> None:
    pages = [page for room in ("reference", "tables", "methods") for page in sorted((site / room).rglob("index.html"))]
    assert len(pages) > 120
    heights = {
        str(page.parent.relative_to(site)): shown(tab, page, DESKTOP).evaluate(
            "document.querySelector('article').getBoundingClientRect().height"
        )
        for page in pages
    }
    assert not {name: height for name, height in heights.items() if height > LONGEST}


def test_the_front_page_is_one_screen(site: Path, tab: Page) -> None:
    shown(tab, site / "index.html", DESKTOP)
    bottoms = tab.evaluate(
        "['h1', 'img[src$=\"first-run.png\"]', 'pre', '.ways > div:last-child']"
        ".map(name => document.querySelector('article ' + name).getBoundingClientRect().bottom)"
    )
    assert all(0 < bottom <= DESKTOP["height"] for bottom in bottoms), bottoms
    assert tab.evaluate("document.querySelector('img[src$=\"first-run.png\"]').naturalWidth") > 0
    assert tab.locator(".ways > div").count() == 3


def test_tables_and_code_stay_inside_a_phone(site: Path, tab: Page) -> None:
    names = (".", "tutorials/language", "how_to/choose_a_method", "explanations/rejection_sampling", "guide/doctor")
    for name in names:
        shown(tab, site / name / "index.html", PHONE)
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name


def test_no_number_of_a_table_is_broken(site: Path, tab: Page) -> None:
    for name in ("guide/selection_findings", "guide/results", "guide/study", "guide/diffusion"):
        shown(tab, site / name / "index.html", DESKTOP)
        lines = tab.evaluate(
            """[...document.querySelectorAll("article td")]
            .filter(cell => /^[-+]?[0-9.]+$/.test(cell.textContent.trim()))
            .map(cell => {
                const range = document.createRange();
                range.selectNodeContents(cell);
                return [cell.textContent, new Set([...range.getClientRects()].map(line => line.top)).size];
            })"""
        )
        assert lines, name
        assert [text for text, count in lines if count > 1] == [], name
