from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.look.report.run_folders import NASTY, write_large_run, write_run

from groupwise.config import ConfigError
from groupwise.runs import Run, read_run
from groupwise_look.report.page import render, write_page


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
    assert page_data["variants"] == ["grpo", "ema"]
    assert [run["name"] for run in page_data["runs"]] == ["grpo, seed 0", "grpo, seed 1", "ema, seed 0", "ema, seed 1"]
    assert [len(data(page, f"groups-{place}")["groups"]) for place in range(4)] == [9, 9, 9, 9]
    text = " ".join(Reader(page).texts)
    assert "objective.smoothing.kind" in text
    assert "The cups game." in text
    assert list(out.parent.iterdir()) == [out], "nothing else is left"


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


def test_damage_is_shown_as_far_as_it_goes(tmp_path: Path, compared_runs: list[Run]) -> None:
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


@pytest.mark.parametrize(
    "config", [{"seed": [1], "name": {}}, {"objective": 3, "domain": None, "track": 7}, {"name": ""}]
)
def test_a_configuration_of_any_form_is_shown(tmp_path: Path, config: dict[str, Any]) -> None:
    run = write_run(tmp_path / "run", config=config)
    assert b"</html>" in render([run, run])


def test_the_pictures_of_evaluations_are_on_the_page(drawing_run: Run) -> None:
    reader = Reader(render([drawing_run]))
    images = [attributes for tag, attributes in reader.tags if tag == "img"]
    assert images
    assert all(str(attributes["src"]).startswith("data:image/") and attributes["alt"] for attributes in images)


def test_a_page_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="give another file with --out"):
        write_page([write_run(tmp_path / "run")], tmp_path / "file" / "report.html")


@pytest.mark.slow
def test_many_steps_of_many_members_stay_small(tmp_path: Path) -> None:
    page = render([write_large_run(tmp_path / "run", steps=1000)])
    assert len(page) < 20e6
    counts = data(page, "groups-0")["counts"]
    assert counts["recorded"] == 4000
    assert counts["shown"] == 300
    assert sum(counts["strata"].values()) == 300


def test_remarks_of_the_rewards_at_the_start_are_on_the_page(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    starts = {"starts": [{"remarks": ["reward 'tests': namespaces are refused <b>"]}]}
    (tmp_path / "run" / "environment.json").write_text(json.dumps(starts))
    assert b"reward &#39;tests&#39;: namespaces are refused &lt;b&gt;" in render([read_run(tmp_path / "run")])
    (tmp_path / "run" / "environment.json").write_text('{"starts": [{"remarks": {"no": "list"}}]}')
    assert b"are refused" not in render([read_run(tmp_path / "run")])
