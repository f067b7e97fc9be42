"""The union of kinds: read strictly, written and read again, light to import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from tests.packages import installed

from groupwise.config import Config, ConfigError, json_schema, validate
from groupwise.reward import Length, RewardConfig
from groupwise.reward.config import REWARDS

MINIMAL: dict[str, dict[str, Any]] = {
    "exact_answer": {},
    "numeric_answer": {},
    "math_verify": {},
    "format": {},
    "length": {},
    "coherence": {},
    "repetition": {},
    "soft_overlong": {},
    "knights_and_knaves": {},
    "reasoning_gym": {},
    "reward_model": {"path": "folder"},
    "judge": {"address": "http://127.0.0.1:1/v1", "model": "m"},
    "unit_tests": {},
    "jpeg_size": {},
    "classifier": {"path": "folder"},
    "clip_score": {"path": "folder"},
    "pick_score": {"path": "folder"},
    "aesthetic": {"path": "folder", "head": "head.safetensors"},
    "win_rate": {"function": "a:b"},
    "psnr": {"result": "map"},
    "squared_error": {"jpeg_quality": 20, "result": "map"},
    "ssim": {"jpeg_quality": 50},
    "lpips": {},
    "vqa": {"mode": {"kind": "hybrid", "scale": {"kind": "x10"}}, "per_shot": {"1": {"kind": "legacy"}}},
    "shot_cost": {},
    "callable": {"path": "a:b", "arguments": {"x": [1, "two"]}},
}


class Experiment(Config):
    rewards: dict[str, RewardConfig]


def test_every_kind_is_in_the_table_above() -> None:
    assert set(REWARDS.names()) == set(MINIMAL)


@pytest.mark.parametrize("kind", MINIMAL)
def test_written_and_read_again_is_the_same(kind: str) -> None:
    reward = validate(Experiment, {"rewards": {"r": {"kind": kind, "weight": 2, **MINIMAL[kind]}}}).rewards["r"]
    assert reward.kind == kind
    assert TypeAdapter(RewardConfig).validate_json(reward.model_dump_json()) == reward
    assert reward.weight == 2.0


def test_unknown_kinds_and_keys_are_named() -> None:
    with pytest.raises(ConfigError, match=r"rewards.r.*lenght.*length"):
        validate(Experiment, {"rewards": {"r": {"kind": "lenght"}}})
    with pytest.raises(ConfigError, match=r"rewards.r.targt.*target"):
        validate(Experiment, {"rewards": {"r": {"kind": "length", "targt": 3}}})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("weight", float("nan")),
        ("weight", "1"),
        ("timeout_seconds", 0),
        ("on_error", "ignore"),
        ("role", "critic"),
        ("target", 0),
    ],
)
def test_values_out_of_range(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"rewards.r.*{key}"):
        validate(Experiment, {"rewards": {"r": {"kind": "length", key: value}}})


def test_there_is_a_schema_for_editors() -> None:
    assert "soft_overlong" in str(json_schema(Experiment))


def test_rewards_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Length().target = 3  # type: ignore[misc]


def test_configuration_loads_neither_torch_nor_transformers() -> None:
    heavy = "{'torch', 'transformers', 'httpx', 'sympy', 'math_verify', 'reasoning_gym', 'numpy'}"
    program = f"import groupwise.reward, sys; print({heavy} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
        == "set()"
    )


def test_an_installed_package_brings_a_kind(tmp_path: Path) -> None:
    (tmp_path / "kindness.py").write_text(
        "from typing import Literal\n"
        "from groupwise.reward import Reward\n\n\n"
        "class Kind(Reward):\n"
        '    kind: Literal["kind_words"] = "kind_words"\n'
        '    word: str = "please"\n\n'
        "    def __call__(self, prompts, completions, **columns):\n"
        "        return [float(self.word in text) for text in completions]\n"
    )
    points = "kind_words = kindness:Kind\nblunt = kindness:Kind\nlost = kindness:Nobody"
    installed(tmp_path, "kindness", "groupwise.reward_kinds", points)
    program = """
from groupwise.config import Config, validate
from groupwise.reward import RewardConfig, Rewards

class Experiment(Config):
    rewards: dict[str, RewardConfig]

def read(table):
    return validate(Experiment, {"rewards": {"r": table}}).rewards["r"]

for isolation in ("thread", "process"):
    with Rewards({"r": read({"kind": "kind_words", "word": "thank", "isolation": isolation})}) as rewards:
        print(rewards.score(["?"] * 2, ["thank you", "no"]).values)
for table in ({"kind": "kind_words", "wrod": "a"}, {"kind": "blunt"}, {"kind": "lost"}):
    try:
        read(table)
    except ValueError as error:
        print(" ".join(str(error).split()))
"""
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    threads, processes, key, blunt, lost = done.stdout.splitlines()
    assert threads == processes == "{'r': [1.0, 0.0]}"
    assert "unknown key" in key
    assert "did you mean word?" in key
    assert "Kind is a reward of kind 'kind_words'" in blunt
    assert "package kindness (kindness:Nobody) cannot be imported" in lost
