"""The page of `groupwise doctor` holds every rule as the code has it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from tests.docs.test_metrics import PATTERNS, ROOT

from groupwise.experiment.schema import file_schema
from groupwise.objective.preset import method_names
from groupwise_look.diagnosis import RULES


def test_the_rules_are_those_of_the_code() -> None:
    spec = importlib.util.spec_from_file_location("doctor_page", ROOT / "docs" / "doctor.py")
    assert spec is not None
    assert spec.loader is not None
    doctor = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(doctor)
    page = Path(doctor.PAGE).read_text(encoding="utf-8")
    assert page == doctor.written(page), "run: python docs/doctor.py"


def test_rules_read_metrics_that_the_page_of_metrics_names() -> None:
    names = {re.sub("NAME|JUDGE", "x", metric) for rule in RULES for metric in rule.reads}
    assert {name for name in names if not any(pattern.fullmatch(name) for pattern in PATTERNS)} == set()


def test_a_rule_says_what_to_set() -> None:
    for rule in RULES:
        assert rule.question.endswith("?"), rule.name
        assert rule.severity == "note" or re.search(r"[a-z_]+\.[a-z_]+|method|groupwise|see ", rule.advice), rule.name


@pytest.mark.slow
def test_rules_name_kinds_and_methods_that_there_are() -> None:
    kinds = _kinds(file_schema())
    for rule in RULES:
        text = f"{rule.advice} {rule.speaks}"
        for named in re.findall(r"[.]kind = ([a-z]\w*(?:,? or [a-z]\w*|, [a-z]\w*(?= or|,))*)", text):
            assert set(re.split(r",? or |, ", named)) <= kinds, (rule.name, named)
        for named in re.findall(r"[(](?:as )?methods? (.*?)(?: does| do)?[)]", text):
            assert set(re.split(r", | and ", named)) <= set(method_names()), (rule.name, named)


def _kinds(schema: Any) -> set[str]:
    """All values of a key `kind` in a JSON schema."""
    if isinstance(schema, list):
        return {name for part in schema for name in _kinds(part)}
    if not isinstance(schema, dict):
        return set()
    kind = schema.get("properties", {}).get("kind", {}) if isinstance(schema.get("properties"), dict) else {}
    names = {kind["const"]} if isinstance(kind, dict) and "const" in kind else set()
    return names.union(*(_kinds(part) for part in schema.values()))
