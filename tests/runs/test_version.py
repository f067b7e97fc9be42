"""Which version wrote a run folder, and which versions go on with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.config import ConfigError
from groupwise.runs.folder import RunFolder, require_known_version, written_by


def run(folder: Path, environment: object) -> RunFolder:
    (folder / "environment.json").write_text(json.dumps(environment))
    return RunFolder(folder)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"starts": [{"versions": {"groupwise": "0.1.0"}}, {"versions": {"groupwise": "0.2.3"}}]}, "0.2.3"),
        ({"starts": []}, None),
        ({"starts": [{"versions": {}}]}, None),
        ({"starts": [{"versions": {"groupwise": 2}}]}, None),
        ({"starts": [{"versions": {"groupwise": "mine"}}]}, None),
        ({"starts": ["0.1.0"]}, None),
        ({}, None),
    ],
    ids=str,
)
def test_the_newest_start_says_it_and_a_damaged_record_says_nothing(
    tmp_path: Path, environment: object, expected: str | None
) -> None:
    assert written_by(run(tmp_path, environment)) == expected
    assert written_by(RunFolder(tmp_path / "nowhere")) is None


@pytest.mark.parametrize("version", ["0.2.0", "0.2.9", "0.3.0", "0.4.0"])
def test_versions_from_the_first_that_is_read_to_the_installed_one_go_on(tmp_path: Path, version: str) -> None:
    require_known_version(run(tmp_path, {"starts": [{"versions": {"groupwise": version}}]}), installed="0.4.1")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            "0.1.9",
            r"was written by Groupwise 0.1.9, whose configuration and checkpoints 0.4.1 does not read; go on with",
        ),
        ("0.5.0", r"was written by Groupwise 0.5.0, and 0.4.1 is installed; install 0.5.0 or later"),
        ("1.0.0", r"install 1.0.0 or later"),
    ],
)
def test_other_versions_are_named(tmp_path: Path, version: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as error:
        require_known_version(run(tmp_path, {"starts": [{"versions": {"groupwise": version}}]}), installed="0.4.1")
    assert "\n" not in str(error.value)
