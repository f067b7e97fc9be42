"""The tables that map other systems' keys onto ours: every key of ours exists and takes the value stated."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.docs.loading import loaded_once
from tests.marks import slow_but

from groupwise.config import ConfigError
from groupwise.experiment import Experiment, load_experiment

BASE = """
[domain]
kind = "language"
model = { kind = "scratch" }
data = { source = { kind = "cups" }, num_train = 16, num_held_out = 4 }
rewards = { correct = { kind = "exact_answer" } }
"""
BASES = {"language": BASE}
BASES["diffusion"] = """
[domain]
kind = "diffusion"
model = { kind = "scratch", shape = { sample_size = 8, in_channels = 1 } }
data = { source = { kind = "digits" } }
rewards = { small = { kind = "jpeg_size" } }
sampler = { kind = "cps" }
"""
BASES["restoration"] = """
[domain]
kind = "restoration"
model = { kind = "network", network = { kind = "residual" } }
source = { kind = "digits" }
rewards = { psnr = { kind = "psnr" }, ssim = { kind = "ssim" } }
"""
BASES["selection"] = """
[domain]
kind = "selection"
source = { kind = "digit_rules" }
task_model = { kind = "digit_rules" }
rewards = { vqa = { kind = "vqa" } }
"""
ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "src" / "groupwise" / "presets" / "keys"
BASE_OF = {
    table.stem: tomllib.loads(table.read_text(encoding="utf-8")).get("base", "language")
    for table in sorted(TABLES.glob("*.toml"))
}
QUICK = ("source_000", "source_001", "source_002", "source_003", "source_004")
ENTRIES = [
    (table.stem, key)
    for table in sorted(TABLES.glob("*.toml"))
    for section in tomllib.loads(table.read_text(encoding="utf-8"))["section"]
    for key in section["key"]
]


def nested(keys: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in keys.items():
        *above, last = path.split(".")
        table = tree
        for name in above:
            table = table.setdefault(name, {})
        table[last] = value
    return tree


def loaded(folder: Path, keys: dict[str, Any], base: str = "language") -> Experiment:
    (folder / "base.toml").write_text(BASES[base])
    return load_experiment(folder / "base.toml", nested(keys))


def look_up(value: Any, path: str) -> Any:
    if path.partition(".")[0] in type(value.objective).model_fields:
        value = value.objective
    for name in path.split("."):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


def same(found: Any, value: Any) -> bool:
    if isinstance(value, list):
        return [each.model_dump(exclude_unset=True) for each in found] == value
    return (found.value if hasattr(found, "value") else found) == value


def documented() -> set[str]:
    """The names of the page of metrics."""
    page = (ROOT / "docs/guide/metrics.md").read_text(encoding="utf-8")
    return {
        name
        for line in page.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split(" | ")[0])
    }


STAGED = [
    (key.get("stage", section.get("stage")), path, value)
    for table in sorted(TABLES.glob("*.toml"))
    for section in tomllib.loads(table.read_text(encoding="utf-8"))["section"]
    for key in section["key"]
    if key.get("stage", section.get("stage"))
    for path, value in key["set"].items()
]


def test_the_stages_that_rows_name_have_what_the_rows_say() -> None:
    wrong = []
    for stage, path, value in STAGED:
        experiment, _, name = stage.partition("/")
        whole = loaded_once(experiment)
        span = next(span for each, span in zip(whole.stages, whole.spans, strict=True) if each.name == name)
        if not same(look_up(span, path), value):
            wrong.append(f"{stage}: {path} is not {value!r}")
    assert not wrong


def test_source_001_is_held_by_its_rows() -> None:
    stages = {stage for stage, _, _ in STAGED}
    assert stages == {
        f"source_001_{name}"
        for name in ("improved/improved", "progressive/supervised", "progressive/progressive", "progressive/full")
    }
    assert len(STAGED) > 40


@pytest.mark.parametrize("table", slow_but(QUICK, BASE_OF))
def test_every_key_of_a_table_exists_and_takes_the_value(tmp_path: Path, table: str) -> None:
    wrong = {}
    for key in [key for name, key in ENTRIES if name == table]:
        try:
            check(tmp_path, BASE_OF[table], key)
        except Exception as error:
            wrong[key["theirs"]] = repr(error)
    assert not wrong


def check(folder: Path, base: str, key: dict[str, Any]) -> None:
    """Fails where a row of a table states what is not there."""
    if "metrics" in key:
        assert set(key["metrics"]) <= documented(), "a quantity is watched under its name"
        return
    if not {"ours", "set"} & set(key):
        assert key["note"].endswith("."), "a key without a counterpart has its reason"
        return
    changes = key.get("set", {})
    experiment = _LOADED.get(place := f"{base} {changes}")
    if experiment is None:
        experiment = _LOADED[place] = loaded(folder, changes, base)
    if "ours" in key:
        look_up(experiment, key["ours"])
        return
    for path, value in changes.items():
        assert same(look_up(experiment, path), value), path


_LOADED: dict[str, Experiment] = {}
"""Many rows of several tables say the same."""


@pytest.mark.parametrize(
    "key",
    [
        {"theirs": "a", "set": {"smoothing.kind": "ema", "smoothing.ema_beta": 0.9}},
        {"theirs": "a", "ours": "smoothing.ema_beta"},
        {"theirs": "a", "metrics": ["no/such"]},
        {"theirs": "a", "note": "unfinished"},
    ],
)
def test_a_wrong_row_is_noticed(tmp_path: Path, key: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, AttributeError, AssertionError)):
        check(tmp_path, "language", key)


@pytest.mark.parametrize(
    ("preset", "keys"),
    [
        ("ema", ["use_ema_smoothing: True", "ema_beta: 0.9"]),
        ("gradient_adaptive", ["use_gradient_adaptive_weighting: True", "gradient_weighting_temperature: 1.0"]),
        ("amic", ["use_amic: True"]),
        ("ptrw", ["use_ptrw: True", "ptrw_sigma: 0.2"]),
        ("temporal_decay", ["use_temporal_decay: True", "temporal_decay_normalize: True"]),
        ("asymmetric_clip", ["use_asymmetric_clipping: True", "clip_ratio_pos: 0.3", "clip_ratio_neg: 0.1"]),
    ],
)
def test_the_preset_of_an_innovation_has_what_its_keys_say(tmp_path: Path, preset: str, keys: list[str]) -> None:
    experiment = loaded(tmp_path, {"method": preset})
    said = {
        path: value
        for table, key in ENTRIES
        if table == "source_000" and key["theirs"] in keys
        for path, value in key["set"].items()
    }
    assert said
    for path, value in said.items():
        assert look_up(experiment, path) == value, path


def test_the_preset_of_source_003_has_its_constants(tmp_path: Path) -> None:
    objective = loaded(tmp_path, {"method": "source_003"}).objective
    assert (objective.trust.low, objective.trust.high) == (0.2, 0.2)
    assert objective.divergence.beta.value == 0.1
    assert objective.entropy.value == 0.01
    assert objective.advantage.kind == "z_score"


def test_the_experiment_of_source_002_has_its_defaults() -> None:
    experiment = loaded_once("source_002")
    objective, reference = experiment.objective, experiment.reference
    assert experiment.train.group_size == 4
    assert (objective.trust.low, objective.trust.high, objective.divergence.beta.value) == (0.2, 0.2, 0.04)
    assert (objective.divergence.kind, objective.divergence.against) == ("exact", "reference")
    assert (objective.advantage.kind, objective.advantage.buffer_size, objective.advantage.min_count) == (
        "per_prompt",
        16,
        16,
    )
    assert experiment.train.minibatches == 2, "ddpo-pytorch makes two optimiser steps on a batch of samples"
    assert objective.needs_reference
    assert reference is not None
    # The source's mixing at one half is the same in both orientations.
    assert (reference.kind, reference.alpha, reference.sync_steps) == ("periodic", 0.5, 10)


def test_the_stages_of_source_001_take_its_epochs() -> None:
    """An epoch is ten steps of eight images."""
    progressive, improved = (loaded_once(f"source_001_{name}") for name in ("progressive", "improved"))
    assert [(stage.name, stage.num_steps / 10) for stage in progressive.stages[1:]] == [
        ("supervised", 5),
        ("progressive", 20),
        ("full", 25),
    ]
    assert [(stage.name, stage.num_steps / 10) for stage in improved.stages[1:]] == [("warm_up", 10), ("improved", 40)]
    for experiment in (progressive, improved):
        assert experiment.domain.source.num_train == 10 * experiment.train.prompts_per_step
        assert [span.samples for span in experiment.spans] == [False, False, *[True] * (len(experiment.stages) - 2)]
    # Two updates a step: the supervised weight comes down over the whole stage, update by update.
    falling = progressive.spans[2]
    weights = [
        falling.objective.auxiliary["supervised"].at(update)
        for update in range(falling.train.num_steps * falling.train.updates_per_batch + 1)
    ]
    assert (weights[0], weights[-1]) == (0.5, 0.25)
    assert all(before > after for before, after in itertools.pairwise(weights))
    assert progressive.spans[3].objective.auxiliary["supervised"].value == 0.25


@pytest.mark.parametrize(
    ("table", "key", "ours"),
    [
        ("trl", "ds3_gather_for_generation", "train.sharding"),
        ("trl", "fsdp", "train.sharding"),
        ("trl", "vllm_server_base_url", "start = true"),
        ("trl", "vllm_server_host", "start = true"),
        ("trl", "optim", "optimiser.path"),
        ("verl", "rollout_correction.rollout_is", "correction.level"),
    ],
)
def test_no_table_denies_what_is_there(table: str, key: str, ours: str) -> None:
    """Shards, servers that are started, other optimisers and weights of whole answers came after the tables did."""
    rows = [
        row
        for section in tomllib.loads((TABLES / f"{table}.toml").read_text(encoding="utf-8"))["section"]
        for row in section["key"]
        if key in (part.split(" ")[0] for part in row["theirs"].split(", "))
    ]
    assert rows
    assert any(ours in f"{row.get('note', '')} {row.get('set', {})}" for row in rows)
