"""`schema`: a JSON schema for editors."""

from __future__ import annotations

import json
from pathlib import Path


def test_the_schema_is_printed_or_written(groupwise, tmp_path: Path):
    printed = json.loads(groupwise("schema").out)
    assert "domain" in printed["properties"]
    ended = groupwise("schema", "--out", tmp_path / "experiment.schema.json")
    assert "#:schema ./experiment.schema.json" in ended.out
    assert json.loads((tmp_path / "experiment.schema.json").read_text()) == printed
