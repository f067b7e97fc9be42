"""`schema`: a JSON schema for editors."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from groupwise.experiment.catalogue import find, shipped
from groupwise.experiment.schema import file_schema


def test_the_schema_is_printed_or_written(groupwise, tmp_path: Path):
    printed = json.loads(groupwise("schema").out)
    assert "domain" in printed["properties"]
    ended = groupwise("schema", "--out", tmp_path / "experiment.schema.json")
    assert "#:schema ./experiment.schema.json" in ended.out
    assert json.loads((tmp_path / "experiment.schema.json").read_text()) == printed


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(file_schema())
    return Draft202012Validator(file_schema())


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped())
def test_every_shipped_file_fits_the_schema(name: str, validator: Draft202012Validator):
    assert [error.message for error in validator.iter_errors(tomllib.loads(find(name).path.read_text()))] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tree", "fits"),
    [
        ({"extends": "language", "stages": {"grpo": {"num_steps": 20}}}, True),
        ({"extends": "language", "trust": {"high": 0.5}, "optimiser": {"learning_rate": {"start": 1e-3}}}, True),
        ({"stages": [{"name": "a", "num_steps": 3}]}, True),
        ({"train": {"num_stps": 3}}, False),
        ({"trust": {"kind": "clp"}}, False),
        ({"trust": {"kind": "gaussian", "low": 0.1}}, False),
        ({"train": {"group_size": "four"}}, False),
        ({"stages": {"grpo": {"steps": 20}}}, False),
        ({"domain": {"kind": "language", "rewards": {"a": {"kind": "exact_anser"}}}}, False),
    ],
)
def test_what_an_editor_marks(tree: dict[str, Any], fits: bool, validator: Draft202012Validator):
    assert validator.is_valid(tree) == fits
