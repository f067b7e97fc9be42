"""The page holds what the table holds, needs nothing but itself, and shows names as they are written."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from groupwise.runs import EvaluatedOn
from groupwise_look.compare.comparison import Comparison, Row
from groupwise_look.compare.page import write_page
from groupwise_look.compare.statistics import Estimate, Spread


class Read(HTMLParser):
    """Texts, and everything that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.fetched: list[str] = []
        self.lines: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [f"{name}={value}" for name, value in attrs if name in ("src", "href")] + (
            [tag] if tag == "script" else []
        )
        if tag == "line":
            self.lines.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def comparison() -> Comparison:
    spread = Spread(0.001, 0.0, 3, 100)
    baseline = Row(
        "method=grpo",
        0.5,
        Estimate(0.9, 0.8, 1.0, spread),
        None,
        60.0,
        (0, 1, 2),
        verdict="what the others are compared with",
    )
    variant = Row(
        "domain.stop=['</s>']",
        0.5,
        Estimate(0.7, 0.6, 0.8, spread),
        Estimate(-0.2, -0.3, -0.1, spread),
        60.0,
        (0, 1, 2),
        p_value=0.01,
        shares=("evaluation prompts",),
        verdict="worse than method=grpo",
    )
    return Comparison(
        "greedy/correct",
        (baseline, variant),
        missing={"method=dapo/seed-0": "exit status 1\n<no luck>"},
        name="language",
        evaluated_on=EvaluatedOn(512, 0),
    )


def test_the_page_shows_every_number_and_the_failed_runs(tmp_path: Path):
    page = Read()
    page.feed(
        write_page(comparison(), tmp_path, command="groupwise compare language", num_cells=9).read_text(
            encoding="utf-8"
        )
    )
    for text in (
        "0.900",
        "-0.200 *",
        "-0.300 to -0.100",
        "0.010",
        "worse than method=grpo",
        "domain.stop=['</s>']",
        "exit status 1\n<no luck>",
    ):
        assert text in page.texts, text
    assert any("6 of 9 runs finished" in text for text in page.texts)
    assert page.fetched == []


def test_intervals_lie_where_they_belong(tmp_path: Path):
    page = Read()
    page.feed(write_page(comparison(), tmp_path).read_text(encoding="utf-8"))
    zero, interval, mean = page.lines[:3]
    # The axis holds -.3 to 0 and a margin of .015 on either side.
    assert (float(zero["x1"] or 0), float(interval["x1"] or 0), float(mean["x1"] or 0)) == (
        round(100 * 0.315 / 0.33, 3),
        round(100 * 0.015 / 0.33, 3),
        round(100 * 0.115 / 0.33, 3),
    )


def test_nothing_finished_is_a_page_too(tmp_path: Path):
    assert "compared" in write_page(Comparison("greedy/correct", ()), tmp_path).read_text(encoding="utf-8")


def test_only_what_is_told_apart_has_a_colour(tmp_path: Path):
    html = write_page(comparison(), tmp_path).read_text(encoding="utf-8")
    # Grey: red, green and blue lie close together, on light paper and on dark.
    greys = re.findall(r"--mark: #(..)(..)(..)", html)
    assert len(greys) == 2
    assert all(
        max(channels) - min(channels) < 32 for grey in greys if (channels := [int(channel, 16) for channel in grey])
    )
    assert "grey where it is not" in html


def test_headings_say_what_their_columns_are_of(tmp_path: Path):
    page = Read()
    page.feed(write_page(comparison(), tmp_path).read_text(encoding="utf-8"))
    for head in ("score on held-out prompts", "difference in it", "gain per second of training", "seconds of a run"):
        assert head in page.texts
    assert not any("all 1 comparisons" in text for text in page.texts)
