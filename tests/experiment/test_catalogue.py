"""Experiments are found by name and by path, and files build on each other."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from groupwise.config import ConfigError
from groupwise.experiment.catalogue import find, shipped
from groupwise.experiment.loading import load_experiment


def test_every_shipped_experiment_is_found_by_its_name_and_says_what_it_is():
    for name in shipped():
        source = find(name)
        assert source.path.name == f"{name}.toml"
        assert source.name == name
        assert source.description, f"{name}.toml needs a description"


def test_a_path_a_run_folder_and_its_config(tmp_path: Path):
    (tmp_path / "mine.toml").write_text('description = "Mine."\nseed = 3\n', encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"name": "theirs", "seed": 4}), encoding="utf-8")
    assert find(tmp_path / "mine.toml").tree == {"description": "Mine.", "seed": 3}
    assert find(tmp_path / "mine.toml").name == "mine"
    for path in (tmp_path, tmp_path / "config.json"):
        assert find(path).name == "theirs"


def test_a_file_that_extends_another_keeps_its_own_name(tmp_path: Path):
    (tmp_path / "below.toml").write_text(
        'description = "Below."\nname = "below"\nseed = 1\n[trust]\nkind = "clip"\nlow = 0.1\n', encoding="utf-8"
    )
    (tmp_path / "above.toml").write_text('extends = "below"\n[trust]\nkind = "gaussian"\n', encoding="utf-8")
    source = find(tmp_path / "above.toml")
    assert source.name == "above"
    assert source.tree == {"seed": 1, "trust": {"kind": "gaussian"}}


def test_a_circle_and_an_unknown_name_are_errors(tmp_path: Path):
    (tmp_path / "a.toml").write_text('extends = "b"\n', encoding="utf-8")
    (tmp_path / "b.toml").write_text('extends = "a.toml"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"through a\.toml -> b\.toml -> a\.toml;"):
        find(tmp_path / "a.toml")
    with pytest.raises(ConfigError, match="no such file"):
        find(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="'nothing_like_it' is neither a shipped experiment nor a file"):
        find("nothing_like_it")


METHODS = ("rejection_sampling", "dapo", "flow_grpo", "topr")


@pytest.mark.parametrize(
    "pairs",
    [
        list(zip(("language", "diffusion", "restoration", "selection"), METHODS, strict=True)),
        # Source 002's moving reference needs a divergence, and the message says so.
        pytest.param(list(itertools.product(set(shipped()) - {"source_002"}, METHODS)), marks=pytest.mark.nightly),
    ],
    ids=["one of each domain", "every"],
)
def test_a_shipped_experiment_takes_another_method(pairs: Iterable[tuple[str, str]]) -> None:
    for name, method in pairs:
        assert load_experiment(name, [f"method={method}"]).method == method
