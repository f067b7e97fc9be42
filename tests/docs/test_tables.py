"""The tables that map other systems' keys onto ours: every key of ours exists and takes the value stated."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

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
TABLES = Path(__file__).resolve().parents[2] / "docs" / "tables"
BASE_OF = {table.stem: tomllib.loads(table.read_text(encoding="utf-8")).get("base", "language") for table in sorted(TABLES.glob("*.toml"))}
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


@pytest.mark.parametrize(("table", "key"), ENTRIES, ids=[f"{table}-{key['theirs']}" for table, key in ENTRIES])
def test_the_key_exists_and_takes_the_value(tmp_path: Path, table: str, key: dict[str, Any]) -> None:
    base = BASE_OF[table]
    if not {"ours", "set", "accepts"} & set(key):
        assert key["note"].endswith("."), "a key without a counterpart has its reason"
        return
    if "ours" in key:
        look_up(loaded(tmp_path, {}, base), key["ours"])
        return
    # A name of theirs that is accepted is given as it is, and found under ours.
    experiment = loaded(tmp_path, key["accepts"] if "accepts" in key else key["set"], base)
    for path, value in (key["becomes"] if "becomes" in key else key["set"]).items():
        found = look_up(experiment, path)
        assert (found.value if hasattr(found, "value") else found) == value, path


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
    said = {path: value for table, key in ENTRIES if table == "source_000" and key["theirs"] in keys for path, value in key["set"].items()}
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
    experiment = load_experiment("source_002")
    objective, reference = experiment.objective, experiment.reference
    assert experiment.train.group_size == 4
    assert (objective.trust.low, objective.trust.high, objective.divergence.beta.value) == (0.2, 0.2, 0.04)
    assert (objective.divergence.kind, objective.divergence.against) == ("exact", "reference")
    assert (objective.advantage.kind, objective.advantage.buffer_size, objective.advantage.min_count) == ("per_prompt", 16, 16)
    assert objective.needs_reference
    assert reference is not None
    # The source's mixing at one half is the same in both orientations.
    assert (reference.kind, reference.alpha, reference.sync_steps) == ("periodic", 0.5, 10)


def test_the_stages_of_source_001_have_its_numbers() -> None:
    experiment = load_experiment("source_001_progressive")
    _, supervised, progressive, full = experiment.spans
    assert [span.train.num_steps // 10 for span in (supervised, progressive, full)] == [5, 20, 25]
    assert not supervised.samples
    assert (progressive.train.group_size, progressive.optimiser.learning_rate.value, progressive.train.max_grad_norm) == (2, 5e-6, 1.0)
    assert [progressive.objective.auxiliary["supervised"].at(step) for step in (0, 400)] == [0.5, 0.25]
    assert (progressive.objective.advantage.kind, progressive.objective.advantage.clip, progressive.objective.trust.low) == ("running_std", 3.0, 0.2)
    assert (full.train.group_size, full.optimiser.learning_rate.value, full.train.max_grad_norm) == (3, 2e-6, 0.5)
    assert (full.objective.advantage.clip, full.objective.trust.low, full.objective.trust.high, full.objective.divergence.beta.value) == (2.0, 0.1, 0.1, 0.02)
    improved = load_experiment("source_001_improved").spans[-1]
    weights = [improved.objective.auxiliary[name].value for name in ("supervised", "consistency")]
    assert (improved.train.group_size, improved.optimiser.learning_rate.value, weights) == (2, 5e-6, [0.5, 0.1])
    # An epoch is ten steps of eight images; its warm-up is ten epochs of fifty.
    assert (improved.optimiser.warm_up_steps, improved.train.num_steps) == (100, 500)


def test_a_wrong_key_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        loaded(tmp_path, {"smoothing.kind": "ema", "smoothing.ema_beta": 0.9})
