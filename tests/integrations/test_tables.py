"""The tables of TRL's and verl's keys leave none out, and the keys of the integrations in them exist."""

import json
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.trl import tiny
from trl import GRPOConfig

from groupwise.objective import Objective
from groupwise_trainers.trl.keys import DECIDED, objective_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
NOT_COMPUTED = {
    "actor": {
        "strategy",
        "freeze_vision_tower",
        "policy_loss",
        "use_prefix_grouper",
        "use_torch_compile",
        "checkpoint",
        "optim",
        "use_fused_kernels",
        "profiler",
        "engine",
        "model_config",
        "global_batch_info",
        "qat",
    },
    "policy_loss": {"rollout_correction"},
    "algorithm": {"kl_ctrl", "filter_groups", "rollout_correction", "pf_ppo"},
    "kl_ctrl": set(),
    "filter_groups": set(),
    "rollout_correction": set(),
}
"""verl's keys that say where and how fast, not what; and tables whose keys are named one by one."""
PREFIX = {"actor": "", "algorithm": ""}


def named(table: str) -> set[str]:
    """Every key that a table names: the words before a value or a remark."""
    content = tomllib.loads(
        (ROOT / "src" / "groupwise" / "presets" / "keys" / f"{table}.toml").read_text(encoding="utf-8")
    )
    keys: list[dict[str, Any]] = [key for section in content["section"] for key in section["key"]]
    return {
        word
        for key in keys
        for word in re.findall(r"(?<![\"\w.])[a-z][\w.]*", re.sub(r"\"[^\"]*\"|\([^)]*\)", "", key["theirs"]))
    }


def test_every_key_of_trls_config_is_in_the_table() -> None:
    assert not {field.name for field in fields(GRPOConfig)} - named("trl")


def test_every_key_in_the_table_is_trls() -> None:
    known = {field.name for field in fields(GRPOConfig)} | {
        "experimental.gmpo.GMPOTrainer",
        "reward_funcs",
        "eval_dataset",
        "experimental.gmpo.",
    }
    # What transformers calls it since; the lowest version allowed has the first name alone.
    known |= {name.replace("gradient", "activation") for name in known if name.startswith("gradient_checkpointing")}
    assert not {word for word in named("trl") if word not in known and not word.startswith("experimental")}


def test_every_key_of_verl_that_says_what_is_computed_is_in_the_table() -> None:
    recorded = json.loads((ROOT / "tests" / "golden" / "verl_0_9.json").read_text(encoding="utf-8"))["keys"]
    assert set(recorded) == set(NOT_COMPUTED)
    for table, keys in recorded.items():
        assert NOT_COMPUTED[table] <= set(keys)
        wanted = {f"{PREFIX.get(table, table + '.')}{key}" for key in set(keys) - NOT_COMPUTED[table]}
        assert not wanted - named("verl"), table


def test_every_loss_and_estimator_of_verl_is_in_the_table() -> None:
    golden = json.loads((ROOT / "tests" / "golden" / "verl_0_9.json").read_text(encoding="utf-8"))
    text = (ROOT / "src" / "groupwise" / "presets" / "keys" / "verl.toml").read_text(encoding="utf-8")
    for case in golden["losses"]:
        assert f'loss_mode = \\"{case["loss"]}\\"' in text
        assert f'loss_agg_mode = \\"{case["loss_agg_mode"]}\\"' in text
    for case in golden["estimators"]:
        assert f'\\"{case["estimator"]}\\"' in text


def test_every_key_that_the_objective_decides_has_its_place() -> None:
    assert set(DECIDED) <= named("trl")


REFUSED: dict[str, dict[str, Any]] = {
    "top_entropy_quantile": {"top_entropy_quantile": 0.2, "entropy_coef": 0.01},
    "use_bias_correction_kl": {"beta": 0.1, "importance_sampling_level": "sequence"},
    "vllm_importance_sampling_correction": {
        "use_vllm": True,
        "loss_type": "vespo",
        "vllm_importance_sampling_mode": "token_mask",
    },
}
"""Keys of TRL with a sound value that no slot says."""
VALUES: dict[str, dict[str, Any]] = {
    "loss_type": {
        "cispo": {"epsilon_high": 5.0},
        "luspo": {"importance_sampling_level": "sequence"},
        "dr_grpo": {"max_completion_length": 256},
    },
}
"""What TRL needs beside a value."""


def loss_keys() -> list[dict[str, Any]]:
    content = tomllib.loads((ROOT / "src" / "groupwise" / "presets" / "keys" / "trl.toml").read_text(encoding="utf-8"))
    return next(section["key"] for section in content["section"] if section["title"] == "Loss")


@pytest.mark.parametrize("key", REFUSED)
def test_what_the_documents_call_refused_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"(?s){key}|into its own weight"):
        objective_of(tiny.settings(tmp_path, **REFUSED[key]))


def test_the_documents_name_what_is_refused_and_nothing_else() -> None:
    page = (ROOT / "docs" / "guide" / "integrations.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| keys of `GRPOConfig` that no slot says |"))
    assert {word for word in re.findall(r"`(\w+)`", row) if word in DECIDED} == set(REFUSED)
    for key in REFUSED:
        entry = next(entry for entry in loss_keys() if re.search(rf"\b{key}\b", entry["theirs"]))
        # Without a counterpart, or with one and the word for where it has none.
        assert "set" not in entry or "refused" in entry["note"], key
    for entry in loss_keys():
        decided = [word for word in re.findall(r"[a-z_]+", entry["theirs"]) if word in DECIDED]
        if decided and "set" not in entry and "ours" not in entry:
            assert decided[0] in REFUSED, entry["theirs"]


@pytest.mark.parametrize(
    "entry",
    [entry for entry in loss_keys() if re.match(r'\w+ = "', entry["theirs"])],
    ids=lambda entry: entry["theirs"],
)
def test_a_value_in_the_table_gives_what_the_table_says(entry: dict[str, Any], tmp_path: Path) -> None:
    """As a GRPOConfig is read by the integration: the kinds that the table sets, or those of the method
    that it names.
    """
    key, value = re.match(r'(\w+) = "(\w+)"', entry["theirs"]).groups()  # type: ignore[union-attr]
    beside = VALUES.get(key, {}).get(value, {})
    vllm = {"use_vllm": True} if key.startswith("vllm") else {}
    found = objective_of(tiny.settings(tmp_path, **{key: value}, **beside, **vllm)).model_dump(mode="json")
    said = dict(entry["set"])
    if "method" in said:
        method = Objective.preset(said["method"]).model_dump(mode="json")
        said |= {"trust.kind": method["trust"]["kind"], "aggregation.kind": method["aggregation"]["kind"]}
        del said["method"]
    for dotted, expected in said.items():
        slot, field = dotted.split(".")
        if isinstance(expected, str):
            assert found[slot][field] == expected, dotted
        else:
            assert field in found[slot], dotted
