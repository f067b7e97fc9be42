"""A served report in a real browser: it goes on with the runs, and keeps what its reader chose."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.look.report.run_folders import write_run

from groupwise.runs import Run
from groupwise_look.report import serve as served
from groupwise_look.report.serve import LivePage, serve

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path: Path) -> Run:
    rows: list[dict[str, Any]] = [
        {"step": step, "stage": "a" if step < 3 else "b", "reward": 0.5 + step / 100, "step_time": 1.0}
        for step in range(1, 6)
    ]
    return write_run(tmp_path / "run", rows=rows, members=[{"group": 0, "reward": 1.0, "text": "t", "prompt": "p"}])


@pytest.fixture
def page(run: Run, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.setattr(served, "_REST", 0.0)
    with serve(LivePage([run.path]), 0) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        context = browser.new_context(reduced_motion="reduce")
        opened = context.new_page()
        opened.set_default_timeout(120_000)
        opened.goto(f"http://127.0.0.1:{server.server_port}/")
        opened.locator("[data-choice=seconds]").wait_for()
        yield opened
        context.close()
        server.shutdown()


def go_on(run: Run, step: int) -> None:
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "stage": "b", "reward": 0.9, "step_time": 1.0}) + "\n")


def steps_of(page: Page) -> str:
    return page.locator("table.results td.steps").first.inner_text()


def test_the_page_goes_on_and_keeps_what_was_chosen(page: Page, run: Run) -> None:
    assert steps_of(page) == "5"
    page.locator("[data-choice=seconds]").click()
    page.locator("[data-choice=a]").click()
    page.evaluate("document.activeElement.blur(); scrollTo(0, 300)")
    page.mouse.move(2, 2)  # A pointer on a chart reads it, and a reader is asked first.
    before = page.evaluate("scrollY")
    go_on(run, 6)
    expect(page.locator("table.results td.steps").first).to_have_text("6", timeout=120_000)
    page.locator("[data-choice=seconds]").wait_for()
    assert page.locator("[data-choice=seconds]").get_attribute("aria-pressed") == "true"
    assert page.locator("[data-choice=a]").get_attribute("aria-pressed") == "false"
    end = time.monotonic() + 600
    while abs(page.evaluate("scrollY") - before) > 40:
        assert time.monotonic() < end, "the page stands where it stood"
        page.wait_for_timeout(50)


def test_a_reader_of_a_group_is_asked_first(page: Page, run: Run) -> None:
    page.locator("#groups").scroll_into_view_if_needed()
    page.locator(".items .item").first.click()
    page.locator(".items .item").first.focus()
    go_on(run, 6)
    page.locator("#update").wait_for()
    assert steps_of(page) == "5"
    page.locator("#update").click()
    expect(page.locator("table.results td.steps").first).to_have_text("6", timeout=120_000)


def test_a_server_that_ended_is_told_and_the_page_stays(page: Page) -> None:
    page.route("**/version", lambda route: route.abort())
    expect(page.locator("#live")).to_contain_text("does not answer", timeout=120_000)
    assert steps_of(page) == "5"
