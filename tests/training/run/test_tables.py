"""Tables that a domain makes: files for programs and for people."""

from __future__ import annotations

import json
from pathlib import Path

from groupwise.domain.protocol import Interval, Table
from groupwise.training.run.rollout_records import write_tables

TABLE = Table(
    "lead",
    "How far ahead",
    ["by", "1 shot", "2 shots"],
    [["kNN", Interval(0.1, 0.05, 0.2), None], ["none", 0.5, "x"]],
    ["A note."],
)


def test_both_files_say_the_same(tmp_path: Path) -> None:
    write_tables(tmp_path / "tables", [TABLE])
    table_json = json.loads((tmp_path / "tables" / "lead.json").read_text())
    assert table_json["rows"] == [["kNN", {"mean": 0.1, "low": 0.05, "high": 0.2}, None], ["none", 0.5, "x"]]
    assert table_json["notes"] == ["A note."]
    assert (
        (tmp_path / "tables" / "lead.md").read_text()
        == "How far ahead\n\n| by | 1 shot | 2 shots |\n|---|---|---|\n| kNN | 0.100 [0.050, 0.200] | - |\n| none | 0.500 | x |\n\nA note.\n"  # noqa: E501
    )
