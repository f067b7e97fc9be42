"""The report's page in a real browser: clicked through, from the keyboard, light and dark, narrow and wide, with
hostile texts, and large.
"""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page
from tests.browser.conftest import Open, Opened
from tests.look.compare.test_comparison import comparison
from tests.look.report import trained_runs
from tests.look.report.run_folders import NASTY, write_large_run, write_run
from tests.marks import slow_but

from groupwise.runs import Run, read_run
from groupwise_look.compare.page import write_page as write_comparison
from groupwise_look.report.page import write_page


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    return trained_runs.compared(tmp_path_factory)


def quiet(opened: Opened) -> None:
    assert opened.said == []
    assert opened.asked == []


def drawn(page: Page) -> int:
    """Charts with a curve in them."""
    return page.locator("figure.chart svg:has(path.mean[d^=M])").count()


def settle(page: Page) -> None:
    """Two frames: what a change of the view sets off has happened by the end of the second."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


UNFOLD = "document.querySelectorAll('#curves details').forEach((part) => (part.open = true))"


def scroll_through(page: Page) -> None:
    """Passes every part of the page, so that every chart is drawn."""
    for top in range(0, page.evaluate("document.body.scrollHeight"), 400):
        page.evaluate(f"scrollTo(0, {top})")
        settle(page)


def to_curves(opened: Opened) -> Page:
    opened.page.locator("figure.chart").first.scroll_into_view_if_needed()
    opened.page.wait_for_selector("figure.chart svg")
    return opened.page


def to_groups(opened: Opened) -> Page:
    opened.page.locator("#groups").scroll_into_view_if_needed()
    opened.page.wait_for_selector(".items .item")
    return opened.page


@pytest.mark.slow
def test_lanes_of_a_comparison_share_their_axis(browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(write_comparison(comparison(), tmp_path, command="", num_cells=9).as_uri())
    ends = page.eval_on_selector_all(
        ".lanes",
        "charts => charts.map(chart => [...chart.querySelectorAll('.lane svg, .axis > :nth-child(2)')]"
        ".map(lane => lane.getBoundingClientRect()).map(box => `${box.left} ${box.right}`))",
    )
    page.close()
    assert [len(chart) for chart in ends] == [2, 3]
    assert [len(set(chart)) for chart in ends] == [1, 1]


@pytest.mark.slow
def test_charts_are_drawn_as_they_are_reached(open_page: Open, compared: list[Run]) -> None:
    opened = open_page(compared)
    page = to_curves(opened)
    page.wait_for_selector("figure.chart svg path.mean")
    settle(page)
    first = drawn(page)
    assert 2 <= first < 20
    total = page.locator("figure.chart:has(.plot)").count()
    scroll_through(page)
    folded = page.locator("details.folded figure.chart").count()
    assert drawn(page) >= total - folded - 2, "all but those whose values never were"
    assert page.locator("figure.chart").first.locator("path.mean").count() == 2
    assert page.locator("figure.chart").first.locator("path.seeds").count() == 2, "the spread of the seeds"
    page.evaluate(UNFOLD)
    page.wait_for_selector("details.folded svg path.mean")
    quiet(opened)


@pytest.mark.slow
def test_the_cursor_reads_every_variant_and_is_shared(open_page: Open, compared: list[Run]) -> None:
    opened = open_page(compared)
    page = to_curves(opened)
    page.wait_for_selector("figure.chart svg path.mean")
    settle(page)
    chart = page.locator("figure.chart svg").first
    chart.hover(position={"x": 60, "y": 80})
    assert opened.text("#tip b") == "Step 1"
    assert page.locator("#tip bdi").all_inner_texts() == ["grpo", "temporal_decay"]
    assert "2 seeds" in opened.text("#tip")
    assert page.locator("line.cursor[visibility=visible]").count() == drawn(page)
    page.mouse.move(5, 5)
    assert page.locator("#tip").is_hidden()
    chart.focus()
    for key, step in (("ArrowRight", 1), ("ArrowRight", 2), ("End", 3), ("ArrowLeft", 2), ("Home", 1)):
        page.keyboard.press(key)
        assert opened.text("#tip b") == f"Step {step}"
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()
    assert "Arrow keys" in str(chart.get_attribute("aria-label"))
    quiet(opened)


@pytest.mark.slow
def test_a_variant_can_be_hidden_and_shown_alone(open_page: Open, compared: list[Run]) -> None:
    opened = open_page(compared)
    page, lines = to_curves(opened), opened.page.locator("figure.chart").first.locator("path.mean")
    lines.first.wait_for()
    buttons = page.locator("#legend button")
    assert buttons.all_inner_texts() == ["grpo", "temporal_decay"]
    buttons.nth(0).click()
    assert lines.count() == 1
    assert buttons.nth(0).get_attribute("aria-pressed") == "false"
    buttons.nth(1).click()
    assert "no variant is shown" in page.locator("figure.chart svg").first.text_content()
    for button in (0, 1):
        buttons.nth(button).click()
    assert lines.count() == 2
    quiet(opened)


@pytest.mark.slow
def test_curves_are_drawn_over_time_and_decisions(open_page: Open, compared: list[Run]) -> None:
    opened = open_page(compared)
    page, chart = to_curves(opened), opened.page.locator("figure.chart svg")
    chart.first.wait_for()
    assert page.locator("#view [role=group]").first.locator("button").all_inner_texts() == [
        "Steps",
        "Time",
        "Decisions",
    ]
    first = chart.first.locator("path.mean").first.get_attribute("d")
    page.locator("[data-choice=decisions]").click()
    assert page.locator("[data-choice=step]").get_attribute("aria-pressed") == "false"
    assert chart.first.locator("path.mean").first.get_attribute("d") != first
    chart.first.focus()
    page.keyboard.press("End")
    totals = [sum(run.series("num_decisions")[1]) for run in compared]
    low, high = min(totals[:2] + totals[2:]), max(totals)
    assert re.fullmatch(r"After \d+ decisions", opened.text("#tip b"))
    assert low <= int(re.sub(r"\D", "", opened.text("#tip b"))) <= high
    assert "step 3" in opened.text("#tip")
    page.locator("[data-choice=seconds]").click()
    assert page.locator("#tip").is_hidden()
    chart.first.focus()
    page.keyboard.press("End")
    assert re.fullmatch(r"After [\d.]+ s", opened.text("#tip b"))
    quiet(opened)


def staged(folder: Path) -> Run:
    """A long warm-up without rewards, and a short stage with rewards."""
    rows: list[dict[str, Any]] = [
        {"step": step, "stage": "warm_up", "loss_sup": 1.0 / step, "step_time": 1.0, "num_decisions": 10}
        for step in range(1, 101)
    ]
    rows[99]["eval/score"] = 0.25
    rows += [
        {"step": step, "stage": "grpo", "reward": (step % 2) + step / 100, "step_time": 2.0, "num_decisions": 10}
        for step in range(101, 121)
    ]
    rows[-1]["eval/score"] = 0.75
    return write_run(folder, rows=rows)


@pytest.mark.slow
def test_a_warm_up_is_folded_and_can_be_unfolded(open_page: Open, tmp_path: Path) -> None:
    opened = open_page([staged(tmp_path / "run")])
    page = to_curves(opened)
    page.evaluate(UNFOLD)

    def steps(metric: str) -> list[int]:
        figure = page.locator(f"figure.chart:has(code:text-is('{metric}'))")
        figure.scroll_into_view_if_needed()
        chart = figure.locator("svg")
        settle(page)
        read = []
        for key in ("Home", "End"):
            chart.focus()
            page.keyboard.press(key)
            read.append(int(re.sub(r"\D", "", opened.text("#tip b"))))
        return read

    assert steps("reward") == [101, 120]
    assert steps("eval/score") == [100, 120], "what the warm-up ended with is where the stage began"
    assert steps("loss_sup") == [1, 100], "a chart of a folded stage alone is whole"
    page.locator("[data-choice=warm_up]").click()
    page.locator("[data-choice=grpo]").click()
    assert steps("reward") == [101, 120]
    assert steps("eval/score") == [100, 100]
    quiet(opened)


@pytest.mark.slow
def test_smoothing_draws_a_calmer_line_over_the_values(open_page: Open, tmp_path: Path) -> None:
    opened = open_page([staged(tmp_path / "run")])
    page, chart = to_curves(opened), opened.page.locator("figure.chart:has(code:text-is('reward')) svg")
    chart.wait_for()
    heights = (
        """(path) => [...path.getAttribute("d").matchAll(/[ML][-.0-9]+ ([-.0-9]+)/g)].map((each) => Number(each[1]))"""
    )

    def roughness() -> float:
        values = chart.locator("path.mean").evaluate(heights)
        return sum(abs(one - other) for one, other in pairwise(values))

    values = roughness()
    assert chart.locator("path.raw").count() == 0
    page.locator("[data-choice=Strong]").click()
    assert chart.locator("path.raw").count() == 1
    assert 0 < roughness() < values / 2
    chart.focus()
    page.keyboard.press("End")
    assert re.search(r"2\.?\d* |0\.2|1\.2", opened.text("#tip"))
    assert "smoothed" in opened.text("#tip")
    page.locator("[data-choice=None]").click()
    assert roughness() == values
    quiet(opened)


@pytest.mark.slow
def test_a_phone_shows_what_came_out_before_anyone_scrolls(open_page: Open, compared: list[Run]) -> None:
    opened = open_page(compared, size=(390, 800))
    cells = opened.page.locator("table.results td:is([data-label=Before], [data-label=After])")
    boxes = cells.evaluate_all("cells => cells.map(cell => [cell.clientWidth, cell.getBoundingClientRect().right])")
    assert len(boxes) == 4
    assert all(width and right <= 390 for width, right in boxes), boxes
    quiet(opened)


def test_the_tables_of_a_run_are_shown(open_page: Open, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run.path / "tables").mkdir()
    table = {
        "name": "baselines",
        "title": "Accuracy by number of demonstrations",
        "columns": ["by", "1 shot", "2 shots"],
        "rows": [["ours", {"mean": 0.5, "low": 0.25, "high": 0.75}, 0.625], [NASTY, None]],
        "notes": ["A note."],
    }
    (run.path / "tables" / "baselines.json").write_text(json.dumps(table))
    (run.path / "tables" / "broken.json").write_text("{")
    (run.path / "tables" / "odd.json").write_text('{"columns": 3}')
    opened = open_page([read_run(run.path)])
    cells = opened.page.locator(".domain-table td").all_inner_texts()
    assert cells[:2] == ["0.500 [0.250, 0.750]", "0.625"]
    assert opened.page.locator(".domain-table").count() == 1
    assert opened.page.evaluate("window.pwned") is None
    quiet(opened)


def test_groups_are_searched_filtered_and_browsed_with_the_mouse(open_page: Open, compared: list[Run]) -> None:
    opened = open_page(compared)
    page = to_groups(opened)
    assert "9 groups were recorded in 3 of 3 steps, and all are here" in opened.text("#groups .sample")
    assert page.locator(".item").count() == 9
    page.locator(".item").nth(4).click()
    assert page.locator(".item").nth(4).get_attribute("aria-selected") == "true"
    assert opened.text(".detail .facts").startswith("Step 2")
    assert page.locator(".member").count() == 4
    rewards = [float(text.replace("−", "-")) for text in page.locator(".member .reward b").all_inner_texts()]
    assert rewards == sorted(rewards, reverse=True)
    assert sorted(page.locator(".member").first.locator(".part bdi").all_inner_texts()) == ["correct", "short"]
    prompt = opened.text(".detail .prompt")
    page.locator("input[type=search]").fill(prompt[:14].upper())
    found = page.locator(".item").count()
    assert 1 <= found < 9
    assert all(prompt[:14] in text for text in page.locator(".item .excerpt").all_text_contents())
    page.locator("input[type=search]").fill("no such words anywhere")
    assert opened.text(".found") == "No group matches."
    assert "widen the search" in opened.text(".detail")
    page.locator("input[type=search]").fill("")
    for name in ("flat", "wrong", "spread", "all"):
        button = page.locator(f"[data-filter={name}]")
        said = int(re.sub(r"\D", "", button.locator(".quiet").inner_text()))
        button.click()
        assert page.locator(".item").count() == said
        assert button.get_attribute("aria-pressed") == "true"
    page.locator("[data-filter=spread]").click()
    spreads = []
    for text in page.locator(".item .where .quiet").all_text_contents():
        low, high = (float(each.replace("−", "-")) for each in text.split(" to "))
        spreads.append(high - low)
    assert spreads == sorted(spreads, reverse=True)
    page.locator("select").select_option(label="temporal_decay, seed 1")
    assert page.locator("[data-filter=spread]").get_attribute("aria-pressed") == "true"
    quiet(opened)


# What can be operated and is reached by Tab: a list is entered once, its items are reached by arrows.
OPERABLE = """() => {
  const nodes = document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]");
  const listed = (node) => node.tabIndex < 0 && (node.tagName === "DIV" || node.closest("[role=listbox]"));
  const reached = [...nodes].filter((node) => !listed(node) && !node.disabled && node.checkVisibility());
  reached.forEach((node, place) => { node.dataset.place = place; });
  return reached.map((node) => `${node.tagName} ${node.className.baseVal ?? node.className} ${node.textContent.trim().slice(0, 20)}`);
}"""  # noqa: E501

# The element under the keyboard: its place, whether a reader sees that it is the one, whether it lies in the window.
FOCUSED = """() => {
  const node = document.activeElement, style = getComputedStyle(node), box = node.getBoundingClientRect();
  const marked = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
  return [node.dataset.place ?? null, marked, box.bottom > 0 && box.top < innerHeight];
}"""


@pytest.mark.slow
def test_the_whole_page_is_operated_by_keyboard_alone(open_page: Open, compared: list[Run]) -> None:
    opened = open_page(compared)
    page = to_groups(opened)
    scroll_through(page)
    page.evaluate("scrollTo(0, 0)")
    names = page.evaluate(OPERABLE)
    assert len(names) > 20
    page.evaluate("document.activeElement.blur()")
    places: list[int] = []
    for _ in range(len(names) + 5):
        page.keyboard.press("Tab")
        place, marked, inside = page.evaluate(FOCUSED)
        if place is None:
            break
        assert marked, f"nothing shows that the keyboard is at {names[int(place)]}"
        assert inside, f"the page does not scroll to {names[int(place)]}"
        places.append(int(place))
    missed = [name for place, name in enumerate(names) if place not in places]
    assert not missed, missed
    assert places == sorted(places), "the order of the keyboard is that of the page"
    summary = page.locator("details > summary").first
    summary.focus()
    opened_before = summary.evaluate("(node) => node.parentElement.open")
    page.keyboard.press("Enter")
    assert summary.evaluate("(node) => node.parentElement.open") != opened_before
    quiet(opened)


@pytest.mark.slow
def test_tokens_are_coloured_by_credit_log_ratio_and_surprisal(open_page: Open, compared: list[Run]) -> None:
    opened = open_page([compared[2]])
    page = to_groups(opened)
    page.locator("[data-filter=spread]").click()
    assert page.locator("[data-colour]").all_inner_texts() == ["nothing", "credit", "log-ratio", "surprisal"]
    member = page.locator(".member").first
    member.locator(".token").first.wait_for()
    tokens = member.locator(".token")
    shade = "(node) => Number((getComputedStyle(node).backgroundColor.match(/[\\d.]+/g) || []).pop())"
    strengths = [token.evaluate(shade) for token in tokens.all()]
    assert len(strengths) > 1
    assert strengths == sorted(strengths, reverse=True), "a credit that decays along the member"
    assert strengths[0] > strengths[-1]
    assert re.fullmatch(r"credit .+ · log-ratio .+ · log-prob .+", str(tokens.first.get_attribute("title")))
    for name in ("lr", "lp"):
        page.locator(f"[data-colour={name}]").click()
        assert page.locator(f"[data-colour={name}]").get_attribute("aria-pressed") == "true"
        page.wait_for_selector(".member .token")
    page.locator("[data-colour=none]").click()
    assert page.locator(".member .token").count() == 0
    assert page.locator(".member .text").count() == 4
    quiet(opened)


@pytest.mark.slow
def test_pictures_stand_side_by_side_and_demonstrations_in_their_order(open_page: Open, tmp_path: Path) -> None:
    drawing, choosing = trained_runs.pictures(tmp_path / "drawing"), trained_runs.demonstrations(tmp_path / "choosing")
    opened = open_page([drawing, choosing])
    page = to_groups(opened)
    assert page.locator(".gallery .member img").count() == 4
    assert page.locator(".gallery img").first.evaluate("(image) => image.naturalWidth") == 8
    page.locator("select").select_option("1")
    shown = page.locator(".member").first.locator(".shown li")
    assert 1 <= shown.count() <= 2
    assert shown.first.locator(".answer").inner_text()
    assert re.match(r"answered \S+ of right answers \S+", page.locator(".member .answered").first.inner_text())
    quiet(opened)


@pytest.mark.slow
def test_held_out_prompts_are_shown_before_and_after(open_page: Open, compared: list[Run], tmp_path: Path) -> None:
    opened = open_page([compared[0], trained_runs.pictures(tmp_path / "drawing")])
    page = to_groups(opened)
    # The drawing run has no prompts apart from those it trains on.
    assert [text.partition(": ")[0] for text in page.locator("select option").all_text_contents()][2:] == [
        "Held-out prompts",
        "Training prompts",
    ]
    page.locator("select").select_option("2")
    assert page.locator("[data-filter]").evaluate_all("(all) => all.map((each) => each.dataset.filter)") == [
        "all",
        "better",
        "worse",
        "same",
    ]
    assert "held-out prompts, before (step 0) and after (step 3), by greedy/" in opened.text("#groups .sample")
    assert set(page.locator(".item .where b").all_text_contents()) == {"greedy", "sampled"}
    whens = page.locator(".member .tag.when").all_text_contents()
    assert whens == sorted(whens, reverse=True)
    assert set(whens) == {"before", "after"}
    assert "prompts" in opened.text("#groups .found")
    assert re.search(
        r"before, step 0: \S+after, step 3: \S+", opened.page.locator(".detail .facts").text_content() or ""
    )
    for name in ("better", "worse", "same"):
        page.locator(f"[data-filter={name}]").click()
        pairs = [
            tuple(float(each.replace("−", "-")) for each in text.split(" → "))
            for text in page.locator(".item .where .tag").all_text_contents()
        ]
        assert all(
            {"better": before < after, "worse": before > after, "same": before == after}[name]
            for before, after in pairs
        )
    page.locator("select").select_option("3")
    assert page.locator("[data-filter=same]").get_attribute("aria-pressed") == "true"
    page.locator("[data-filter=all]").click()
    assert page.locator(".gallery .member img").count() >= 2
    page.locator("select").select_option("0")
    assert page.locator("[data-filter=flat]").count() == 1
    quiet(opened)


LOOKS = [(width, scheme) for width in (360, 390, 800, 1400) for scheme in ("light", "dark")]


@pytest.mark.parametrize(("width", "scheme"), slow_but([(360, "dark")], LOOKS))
def test_every_width_fits_and_every_text_can_be_read(
    open_page: Open, compared: list[Run], scheme: str, width: int
) -> None:
    opened = open_page(compared, size=(width, 800), scheme=scheme)
    page = to_groups(opened)
    assert page.evaluate("document.documentElement.scrollWidth") <= width, (
        "nothing pushes the page wider than the window"
    )
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 20
    poor = [each for each in contrasts if each[0] < 4.5]
    assert not poor, poor[:5]
    assert page.evaluate(CUT) == []
    assert page.evaluate(OVERLAPS) == []
    quiet(opened)


# Texts that reach beyond what holds them, where nobody can scroll to them; excerpts are cut on purpose.
CUT = """() => {
  const scrolls = (node) => /auto|scroll/.test(getComputedStyle(node).overflowX);
  const cut = [];
  for (const node of document.querySelectorAll("main *, header *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.getClientRects().length || node.closest("[hidden], svg, .excerpt, .skip")) continue;
    const box = node.getBoundingClientRect();
    let free = false;
    for (let up = node; up && !free; up = up.parentElement) free = scrolls(up);
    if (!free && (box.right > innerWidth + 1 || box.left < -1)) cut.push([node.tagName, node.className, node.textContent.slice(0, 40), box.left, box.right]);
    if (!free && node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).overflowX === "hidden") cut.push([node.tagName, node.className, node.textContent.slice(0, 40), node.clientWidth, node.scrollWidth]);
  }
  return cut;
}"""  # noqa: E501

# Pairs of texts that lie over each other, of one part of the page.
OVERLAPS = """() => {
  const texts = [];
  for (const node of document.querySelectorAll("main *, header *")) {
    if (!node.checkVisibility() || node.closest("[hidden], .strip, .split, .skip")) continue;
    for (const child of node.childNodes) if (child.nodeType === 3 && child.textContent.trim()) {
      const range = document.createRange();
      range.selectNodeContents(child);
      for (const box of range.getClientRects()) texts.push([box, child.textContent.trim().slice(0, 30), node.closest("svg, section, header, .detail, .items")]);
    }
  }
  const over = [];
  for (let one = 0; one < texts.length; one++) for (let other = one + 1; other < texts.length && other < one + 60; other++) {
    const [a, first, home] = texts[one], [b, second, neighbour] = texts[other];
    if (home !== neighbour) continue;
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left), high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 2 && high > 5) over.push([first, second, wide, high]);
  }
  return over.slice(0, 8);
}"""  # noqa: E501


# For each element with text of its own: the contrast of its colour with what lies behind it, by WCAG 2.
CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  canvas.canvas.width = canvas.canvas.height = 1;
  const rgb = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const each of colours) { canvas.fillStyle = each; canvas.fillRect(0, 0, 1, 1); }
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = (pixel) => {
    const [r, g, b] = [...pixel].slice(0, 3).map((v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = new Map();
  for (const node of document.querySelectorAll("main *, header *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.getClientRects().length || node.closest("[hidden]")) continue;
    const behind = [];
    let opacity = 1;
    for (let up = node; up; up = up.parentElement) {
      behind.unshift(getComputedStyle(up).backgroundColor);
      opacity *= Number(getComputedStyle(up).opacity);
    }
    const style = getComputedStyle(node), colour = node instanceof SVGElement ? style.fill : style.color;
    const ground = light(rgb(behind)), ink = light(rgb([...behind, colour]));
    const contrast = (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05);
    const name = `${node.tagName}.${node.getAttribute("class")}`;
    if (opacity === 1) found.set(`${name}|${colour}|${behind.join()}`, [contrast, name, node.textContent.trim().slice(0, 40), colour, behind.pop()]);
  }
  return [...found.values()];
}"""  # noqa: E501


@pytest.mark.slow
def test_colours_follow_the_system_and_the_button(open_page: Open, compared: list[Run]) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    opened = open_page([compared[0]], scheme="dark")
    page, button = opened.page, opened.page.locator("#theme")
    dark = page.evaluate(ground)
    button.click()
    light = page.evaluate(ground)
    assert (dark, light) == ("rgb(14, 17, 22)", "rgb(247, 248, 250)")
    assert button.get_attribute("aria-label") == "Colours: light"
    button.click()
    assert page.evaluate(ground) == dark
    page.emulate_media(color_scheme="light")
    assert page.evaluate(ground) == dark, "chosen, whatever the system says"
    button.click()
    assert page.evaluate(ground) == light
    quiet(opened)


def test_hostile_texts_are_texts(open_page: Open, tmp_path: Path) -> None:
    long = "x" * 20_000
    member = {
        "group": 0,
        "prompt": NASTY,
        "text": NASTY,
        "key": NASTY,
        "reward": 1.0,
        "advantage": 1.0,
        "rewards": {NASTY: 1.0, "b": 0.0},
        NASTY: NASTY,
    }
    records = [
        member,
        {**member, "tokens": [NASTY, long, "", "\n", "a"], "token_log_prob": [-1.0, -2.0, None, -0.5, 0.0]},
        {**member, "messages": [{"role": NASTY, "content": NASTY}]},
    ]
    config = {"name": NASTY, "description": NASTY, "seed": 0, NASTY: {NASTY: NASTY}}
    run = write_run(
        tmp_path / "run",
        rows=[{"step": step, "stage": NASTY + str(step), NASTY: step, "reward": 1.0} for step in (1, 2, 3)],
        members=records,
        config=config,
    )
    other = write_run(tmp_path / "other", config={**config, "name": NASTY + "2"})
    opened = open_page([run, other], size=(700, 900))
    page = to_groups(opened)
    assert page.evaluate("window.pwned") is None
    shown = page.locator(".detail .prompt").inner_text()
    assert "</script><script>window.pwned = 1</script><!-- <img src=x onerror=pwned()> & ␀␛[31m" in shown
    assert "👩‍👩‍👧 العربية" in shown
    assert page.locator(".detail .prompt").evaluate("(node) => getComputedStyle(node).unicodeBidi") == "isolate"
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    page.locator("[data-colour=lp]").click()
    page.wait_for_selector(".token")
    page.locator("input[type=search]").fill("<img src=x")
    assert page.locator(".item").count() == 1
    to_curves(opened)
    page.locator("figure.chart svg").first.hover(position={"x": 60, "y": 60})
    page.evaluate(UNFOLD)
    page.locator("#configuration details summary").first.click()
    assert page.evaluate("window.pwned") is None
    quiet(opened)


def test_a_policy_inside_the_page_stops_what_is_not_its_own(open_page: Open, compared: list[Run]) -> None:
    opened = open_page([compared[0]])
    page = opened.page
    for change in (
        (
            "() => { const node = document.createElement('script'); node.textContent = 'window.pwned = 1';"
            " document.body.append(node); }"
        ),
        (
            "() => { document.body.insertAdjacentHTML('beforeend', '<img src=\"https://example.org/a.png\""
            ' onerror="window.pwned = 1">\'); }'
        ),
    ):
        with page.expect_console_message():
            page.evaluate(change)
    assert page.evaluate("window.pwned") is None
    assert opened.said
    assert all("Content Security Policy" in each for each in opened.said)


@pytest.fixture(scope="module")
def large_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of five thousand steps of 64 members."""
    folder = tmp_path_factory.mktemp("large")
    path = write_page([write_large_run(folder / "run")], folder / "report.html")
    shutil.rmtree(folder / "run")
    return path


@pytest.mark.timing
def test_a_large_page_opens_within_two_seconds(open_page: Open, large_page: Path) -> None:
    assert open_page(large_page).ready_seconds() < 2
