"""A real browser that reaches nothing but files: each page says what it logged and what it asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from groupwise.runs import Run
from groupwise_look.report.page import write_page


@dataclass
class Opened:
    """A page as it was opened.

    Args:
        page: to click through.
        said: what its console said, and errors nobody caught.
        asked: what it asked for beside its own file.
    """

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def ready_seconds(self) -> float:
        """From the start of loading until the page can be used."""
        return float(self.page.evaluate("Number(document.documentElement.dataset.ready)")) / 1000


Open = Callable[..., Opened]


# For a module at a time: as long as one is open, a loop of events runs in this thread, and no other test can start its
# own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.fail(
            "chromium is not on the PATH, and the report is tested in a real browser; run `make browser`, which"
            " installs it"
        )
    with sync_playwright() as playwright:
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        opened = playwright.chromium.launch(executable_path=path, args=arguments)
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens the page of some runs, or a page that lies somewhere, from disk."""
    contexts = []

    def opened(runs: list[Run] | Path, *, size: tuple[int, int] = (1360, 900), scheme: Any = "light") -> Opened:
        path = runs if isinstance(runs, Path) else write_page(runs, tmp_path / "report.html")
        contexts.append(
            browser.new_context(
                color_scheme=scheme, viewport={"width": size[0], "height": size[1]}, reduced_motion="reduce"
            )
        )
        found = Opened(contexts[-1].new_page())
        found.page.set_default_timeout(120_000)
        found.page.on("console", lambda message: found.said.append(f"{message.type}: {message.text}"))
        found.page.on("pageerror", lambda error: found.said.append(f"error: {error}"))
        own = path.resolve().as_uri()
        found.page.on(
            "request",
            lambda request: (
                found.asked.append(request.url) if request.url != own and not request.url.startswith("data:") else None
            ),
        )
        found.page.goto(own)
        found.page.wait_for_function("document.documentElement.dataset.ready")
        return found

    yield opened
    for context in contexts:
        context.close()
