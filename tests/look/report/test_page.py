from __future__ import annotations

import base64
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.look.report.run_folders import NASTY, write_large_run, write_run

from groupwise.runs import Run, read_run
from groupwise_look.report.page import render, visible, write_page
from groupwise_look.report.pictures import Pictures
from groupwise_look.report.results import Result, group_runs, results
from groupwise_look.report.tables import Judged, latex, markdown, write_tables


class Reader(HTMLParser):
    """What a parser takes for elements, and the data inside."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page.decode("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def count(self, tag: str) -> int:
        return sum(element == tag for element, _ in self.tags)


def data(page: bytes, name: str = "data") -> dict[str, Any]:
    script = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page.decode("utf-8"), re.DOTALL)
    assert script is not None
    return json.loads(script[1])


def test_runs_side_by_side_are_on_one_page(compared_runs: list[Run], tmp_path: Path) -> None:
    out = write_page(compared_runs, tmp_path / "deep" / "report.html")
    page = out.read_bytes()
    page_data = data(page)
    assert page_data["variants"] == ["grpo", "temporal_decay"]
    assert [run["name"] for run in page_data["runs"]] == [
        f"{method}, seed {seed}" for method in ("grpo", "temporal_decay") for seed in (0, 1)
    ]
    assert [len(data(page, f"groups-{place}")["groups"]) for place in range(4)] == [9, 9, 9, 9]
    text = " ".join(Reader(page).texts)
    assert "credit.temporal_decay.gamma" in text
    assert "The cups game." in text
    assert list(out.parent.iterdir()) == [out], "nothing else is left"


def test_the_result_comes_first_and_answers_before_and_after_are_those_that_were_recorded_first(
    compared_runs: list[Run],
) -> None:
    page = render(compared_runs).decode("utf-8")
    heads = re.findall(r"<h[12][^>]*>(.*?)</h[12]>", page)
    assert heads[1:] == ["Before and after", "Groups", "Curves", "Findings", "Configuration"]
    run = compared_runs[0]
    recorded = [record["prompt"] for record in run.records(run.evaluations[3], []) if record.get("mode") == "greedy"]
    shown = re.findall(r'<th scope="row"><bdi>(.*?)</bdi></th><td data-label="Before \(step 0\)">', page)
    assert shown == [visible(prompt) for prompt in recorded[:3]]


def test_nothing_on_the_page_comes_from_elsewhere(compared_runs: list[Run], drawing_run: Run) -> None:
    reader = Reader(render([*compared_runs, drawing_run]))
    for tag, attributes in reader.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        for name in ("src", "href"):
            assert str(attributes.get(name, "#")).startswith(("#", "data:image/")), (tag, attributes)
        assert not any(name.startswith("on") or name == "style" for name in attributes), "what a policy would forbid"
    policy = next(attributes["content"] for tag, attributes in reader.tags if attributes.get("http-equiv"))
    assert "default-src 'none'" in str(policy)
    assert "unsafe" not in str(policy)


def test_text_of_a_run_is_never_markup(tmp_path: Path) -> None:
    member = {
        "group": NASTY,
        "prompt": NASTY,
        "text": NASTY,
        "key": NASTY,
        "tokens": [NASTY, "x" * 10**5],
        "reward": 1.0,
        "rewards": {NASTY: 1.0},
        NASTY: NASTY,
    }
    config = {"name": NASTY, "description": NASTY, "seed": 0, NASTY: {NASTY: NASTY}}
    hostile_run = write_run(
        tmp_path / "a", rows=[{"step": 1, "stage": NASTY, NASTY: 1.0, "reward": 1.0}], members=[member], config=config
    )
    (tmp_path / "a" / "summary.json").write_text(json.dumps({"metric": NASTY, "after": 1.0, "seconds": {NASTY: 1.0}}))
    harmless_run = write_run(tmp_path / "plain", members=[{"group": 0, "text": "a", "reward": 1.0}])
    page, harmless_page = render([read_run(hostile_run.path), harmless_run]), render([harmless_run, harmless_run])
    reader = Reader(page)
    assert {tag: reader.count(tag) for tag in ("script", "style", "img")} == {
        "script": Reader(harmless_page).count("script"),
        "style": 1,
        "img": 0,
    }
    for script_data in (data(page), data(page, "groups-0")):
        assert script_data
    assert data(page, "groups-0")["groups"][0]["members"][0]["t"] == NASTY.replace("\ud800", "\ufffd")
    assert b"\x00" not in page
    assert b"\x1b" not in page


def test_damage_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}\nbroken\n{"step": 2, "rew')
    (tmp_path / "rollouts" / "step-1.jsonl").write_text('{"group": 0, "text": "here", "reward": 1}\n{"group": 0, "te')
    (tmp_path / "rollouts" / "evaluation-1.jsonl").write_bytes(b"\xff\xfe")
    text = " ".join(Reader(render([read_run(tmp_path)])).texts)
    for remark in (
        "line 2 is no JSON object",
        "config.json is not there",
        "the run has not ended",
        "step-1.jsonl: the last line is cut off",
    ):
        assert remark in text


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"step": 1}],
        [{"step": 1, "reward": None}],
        [{"step": -5, "reward": 1e308}, {"step": 10**12, "reward": -1e308}],
    ],
)
def test_hardly_anything_is_a_page_too(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    assert b"</html>" in render([write_run(tmp_path / "run", rows=rows)])


@pytest.mark.slow
def test_many_steps_of_many_members_stay_small(tmp_path: Path) -> None:
    page = render([write_large_run(tmp_path / "run", steps=1000)])
    assert len(page) < 20e6
    counts = data(page, "groups-0")["counts"]
    assert counts["recorded"] == 4000
    assert counts["shown"] == 300
    assert sum(counts["strata"].values()) == 300


def save(path: Path, size: int, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)).save(path)
    return path


def open_address(address: str) -> Image.Image:
    head, _, content = address.partition(",")
    assert head in ("data:image/png;base64", "data:image/webp;base64")
    return Image.open(io.BytesIO(base64.b64decode(content)))


def test_a_small_picture_stays_as_it_is_and_a_large_one_is_made_smaller(tmp_path: Path) -> None:
    small, large = save(tmp_path / "a.png", 8), save(tmp_path / "b.png", 400)
    pictures = Pictures(10**6)
    assert [pictures.add(tmp_path, path.name) for path in (small, large)] == [0, 1]
    assert np.array_equal(np.asarray(open_address(pictures.addresses[0])), np.asarray(Image.open(small)))
    assert open_address(pictures.addresses[1]).size == (160, 160)


def test_the_budget_is_kept_and_what_is_left_out_counted(tmp_path: Path) -> None:
    for number in range(5):
        save(tmp_path / f"{number}.png", 32, seed=number)
    pictures = Pictures(10_000)
    picture_numbers = [pictures.add(tmp_path, f"{number}.png") for number in range(5)]
    assert picture_numbers == [0, 1, None, None, None]
    assert sum(map(len, pictures.addresses)) <= 10_000
    assert pictures.num_left_out == 3


@pytest.mark.parametrize(
    "place",
    [
        "../secret.png",
        "/etc/passwd",
        "none.png",
        "http://example.org/a.png",
        "a\0b.png",
        "broken.png",
        "",
        "x" * 5000 + ".png",
    ],
)
def test_nothing_outside_the_run_is_read_and_nothing_broken_stops_it(tmp_path: Path, place: str) -> None:
    save(tmp_path / "secret.png", 8)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    pictures = Pictures(10**6)
    assert pictures.add(tmp_path / "run", place) is None
    assert (pictures.addresses, pictures.num_unreadable) == ([], 1)


tables_NASTY = r"a_b & 50% of $x$ #1 {c} \d ~ ^ |e| <script>`*"


def row(name: str, *after: float, differences: tuple[float, ...] = ()) -> Result:
    return Result(name, "greedy/right", (0.25,), after, (), (), differences, (61.0, 63.0), 10, ("finished",))


def test_only_a_difference_that_is_told_from_none_is_bold() -> None:
    rows = [row("a", 0.5, 0.7), row("b", 0.6, differences=(0.1, -0.3)), row("c", 0.9, 0.9, differences=(0.3, 0.3))]
    judged = {"b": Judged(-0.4, 0.2, 0.6, False), "c": Judged(0.2, 0.4, 0.0001, True)}
    lines = markdown(rows, judged).splitlines()
    assert lines[2] == "| a | 2 | 0.250 | 0.600 ± 0.141 | | | | 62 |"
    assert lines[3] == "| b | 1 | 0.250 | 0.600 | -0.100 ± 0.283 | -0.400 to +0.200 | 0.600 | 62 |"
    assert lines[4] == r"| c | 2 | 0.250 | 0.900 ± 0.000 | **+0.300 ± 0.000** | +0.200 to +0.400 | \<0.001 | 62 |"
    assert "± is the standard deviation over seeds" in lines[-1]
    assert "**" not in markdown(rows), "nothing was judged"


def test_the_paper_has_what_the_page_has() -> None:
    rows = [row("a", 0.5, 0.7), row("b", 0.6, 0.8, differences=(0.1, 0.1)), row("c", 0.9, differences=(0.4,))]
    judged = {"b": Judged(0.05, 0.15, 0.012, True), "c": Judged(0.3, 0.5, None, False)}
    table = latex(rows, judged)
    assert (
        r"b & 2 & 0.250 & 0.700 $\pm$ 0.141 & \textbf{+0.100 $\pm$ 0.000} & +0.050 to +0.150 & 0.012 & 62 \\" in table
    )
    assert r"c & 1 & 0.250 & 0.900 & +0.400 & +0.300 to +0.500 &  & 62 \\" in table
    assert table.count(r"\textbf") == 1
    assert r"\multicolumn{8}{p{.9\linewidth}}{\footnotesize $\pm$ is the standard deviation over seeds" in table


def test_names_are_names_in_markdown_and_in_latex() -> None:
    line = markdown([row(tables_NASTY, 0.5)]).splitlines()[2]
    assert len(re.findall(r"(?<!\\)\|", line)) == 9, "as many cells as heads"
    assert r"\<script>" in line
    table = latex([row(tables_NASTY, 0.5)])
    assert r"a\_b \& 50\% of \$x\$ \#1 \{c\} \textbackslash{}d \textasciitilde{} \textasciicircum{}" in table
    assert table.count(" & ") == 2 * 7


def test_real_runs_have_a_row_a_variant(compared_runs: list[Run], tmp_path: Path) -> None:
    variants = group_runs(compared_runs)
    text, paper = (path.read_text(encoding="utf-8") for path in write_tables(variants, tmp_path / "out"))
    assert [line.split(" | ")[0] for line in text.splitlines()[2:-2]] == ["| grpo", r"| temporal\_decay"]
    for result in results(variants):
        assert f"{result.mean('after'):.3f} ± {result.deviation('after'):.3f}" in text
    assert paper.startswith(r"\begin{tabular}{lrrrrrrr}")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["table.md", "table.tex"]
