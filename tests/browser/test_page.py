"""The report's page in a real browser: clicked through, from the keyboard, light and dark, narrow and wide, with
hostile texts, and large.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from tests.browser.conftest import Open, Opened
from tests.report import trained_runs
from tests.report.run_folders import NASTY, write_large_run, write_run

from groupwise.report.page import write_page
from groupwise.runs import Run, read_run


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two methods with two seeds each, a credit that is not uniform, and two parts of the reward."""
    home = tmp_path_factory.mktemp("compared")
    rewards = {
        "short": {"kind": "soft_overlong", "max_length": 8, "cache_length": 8},
        "correct": {"kind": "exact_answer", "weight": 2.0},
    }
    settings: list[tuple[str, dict[str, Any]]] = [
        ("grpo", {}),
        ("temporal_decay", {"credit.temporal_decay.gamma": 0.7}),
    ]
    return [
        trained_runs.language(home / f"{method}-{seed}", method=method, seed=seed, rewards=rewards, **objective)
        for method, objective in settings
        for seed in (0, 1)
    ]


def quiet(opened: Opened) -> None:
    assert opened.said == []
    assert opened.asked == []


def drawn(page: Page) -> int:
    """Charts with a curve in them."""
    return page.locator("figure.chart svg:has(path.mean[d^=M])").count()


def settle(page: Page) -> None:
    """Two frames: what a change of the view sets off has happened by the end of the second."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def to_groups(opened: Opened) -> Page:
    opened.page.locator("#groups").scroll_into_view_if_needed()
    opened.page.wait_for_selector(".items .item")
    return opened.page


def test_charts_are_drawn_as_they_are_reached(open_page: Open, compared: list[Run]) -> None:
    opened = open_page(compared)
    page = opened.page
    page.wait_for_selector("figure.chart svg path.mean")
    settle(page)
    first = drawn(page)
    assert 2 <= first < 20
    total = page.locator("figure.chart:has(.plot)").count()
    for top in range(0, page.evaluate("document.body.scrollHeight"), 400):
        page.evaluate(f"scrollTo(0, {top})")
        settle(page)
    folded = page.locator("details.folded figure.chart").count()
    assert drawn(page) >= total - folded - 2, "all but those whose values never were"
    assert page.locator("figure.chart").first.locator("path.mean").count() == 2
    assert page.locator("figure.chart").first.locator("path.seeds").count() == 2, "the spread of the seeds"
    page.locator("details.folded > summary").click()
    page.wait_for_selector("details.folded svg path.mean")
    quiet(opened)


def test_the_cursor_reads_every_variant_and_is_shared(open_page: Open, compared: list[Run]) -> None:
    opened = open_page(compared)
    page = opened.page
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


def test_a_variant_can_be_hidden_and_shown_alone(open_page: Open, compared: list[Run]) -> None:
    opened = open_page(compared)
    page, lines = opened.page, opened.page.locator("figure.chart").first.locator("path.mean")
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


def test_groups_are_browsed_from_the_keyboard(open_page: Open, compared: list[Run]) -> None:
    opened = open_page(compared)
    page = to_groups(opened)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.press("ArrowDown")
    chosen = "[...document.querySelectorAll('.item')].indexOf(document.activeElement)"
    assert page.evaluate(chosen) == 0
    for key, place in (
        ("ArrowDown", 1),
        ("j", 2),
        ("k", 1),
        ("End", 8),
        ("ArrowDown", 8),
        ("Home", 0),
        ("ArrowUp", 0),
        ("PageDown", 8),
    ):
        page.keyboard.press(key)
        assert page.evaluate(chosen) == place, key
        assert page.locator(".item").nth(place).get_attribute("aria-selected") == "true"
    assert opened.text(".detail .facts").startswith("Step 3")
    quiet(opened)


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 820, 1360])
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
    quiet(opened)


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
    page.locator("figure.chart svg").first.hover(position={"x": 60, "y": 60})
    page.locator("details.folded > summary").click()
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


def test_a_damaged_run_opens_and_says_so(open_page: Open, compared: list[Run], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(compared[0].path, tmp_path / "run"))
    (folder / "summary.json").unlink()
    (folder / "config.json").write_text("{")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rew')
    (folder / "rollouts" / "step-2.jsonl").write_text("\x00")
    opened = open_page([read_run(folder)])
    page = to_groups(opened)
    assert page.locator(".item").count() == 6
    remarks = page.locator(".remarks").inner_text()
    assert "config.json is damaged" in remarks
    assert "the last line is cut off" in remarks
    quiet(opened)


@pytest.mark.slow
def test_five_thousand_steps_of_64_members_open_within_two_seconds(open_page: Open, tmp_path: Path) -> None:
    run = write_large_run(tmp_path / "run")
    path = write_page([run], tmp_path / "report.html")
    shutil.rmtree(tmp_path / "run")
    assert path.stat().st_size < 20e6
    # A busy machine adds to some of them.
    opened = min((open_page(path) for _ in range(3)), key=Opened.ready_seconds)
    assert opened.ready_seconds() < 2
    page = to_groups(opened)
    assert "20,000 groups were recorded in 5,000 of 5,000 steps; 300 are here" in opened.text("#groups .sample")
    assert "the other 19,700 stay in rollouts/" in opened.text("#groups .sample")
    page.locator("input[type=search]").fill("where is the ball, 1 0")
    assert page.locator(".item").count() >= 1
    page.locator("figure.chart:has-text('Gradient norm')").scroll_into_view_if_needed()
    page.locator("figure.chart:has-text('Gradient norm') svg path.mean").first.wait_for()
    page.locator("figure.chart:has-text('Gradient norm') svg").hover(position={"x": 110, "y": 60})
    assert "1,000" in page.locator("figure.chart:has-text('Gradient norm') svg").text_content(), (
        "the spike of step 1234 is on the axis"
    )
    quiet(opened)
