"""The union of kinds: read strictly, written and read again, light to import."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from tests.packages import installed

from groupwise import plugins
from groupwise.config import Config, ConfigError, validate
from groupwise.reward import (
    CallableReward,
    Coherence,
    ExactAnswer,
    Format,
    KnightsAndKnaves,
    MathVerify,
    NumericAnswer,
    ReasoningGym,
    Repetition,
    RewardConfig,
    RewardError,
    Rewards,
    RewardTable,
    SoftOverlong,
    UnitTests,
    score,
)
from groupwise.reward.config import REWARDS
from groupwise_images.reward.similarity import Psnr, SquaredError, Ssim

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


@pytest.mark.slow
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


# The lowest and highest value of every reward that has others than 0 and 1: they follow its settings and reach what
# counts groups.


def test_ends_follow_the_settings() -> None:
    assert ExactAnswer().ends == (0.0, 1.0)
    assert KnightsAndKnaves().ends == (-3.0, 3.0)
    assert SoftOverlong().ends == (-1.0, 0.0)
    assert Repetition(penalty=0.5).ends == (-0.5, 0.0)
    assert Format(correct=2.0, wrong=-1.0).ends == (-1.0, 2.0)
    assert UnitTests(correct=2.0, wrong=-1.0).ends == (-1.0, 2.0)
    assert Coherence(maximum=0.6).ends == (0.0, 0.6)
    assert CallableReward(path="a:b", bounds=(-1.0, 1.0)).ends == (-1.0, 1.0)


def test_a_table_carries_them_through_selection_and_joining() -> None:
    def signed(completions: list[str], **columns: object) -> list[float]:
        return [1.0 if text == "yes" else -1.0 for text in completions]

    signed.bounds = (-1.0, 1.0)  # type: ignore[attr-defined]
    table = score({"signed": signed, "long": SoftOverlong(column=None, max_length=9)}, ["?"] * 2, ["yes", "no"])
    assert table.bounds == {"signed": (-1.0, 1.0), "long": (-1.0, 0.0)}
    assert table.select([1]).bounds == RewardTable.concatenate([table, table]).bounds == table.bounds


# A row whose column is None has nothing to be compared with: its members have no reward, the others keep theirs.


IMAGE = np.full((16, 16, 3), 128, "uint8")
ROLES = "<think>.</think><answer>Al is a knight</answer>"
GYM = {"source_dataset": "basic_arithmetic"}
CASES: list[tuple[Any, Any, dict[str, Any]]] = [
    (ExactAnswer(), "4", {"answer": "4"}),
    (NumericAnswer(), "4", {"answer": 4}),
    (MathVerify(), "$4$", {"answer": "4"}),
    (KnightsAndKnaves(), ROLES, {"answer": "Al is a knight."}),
    (ReasoningGym(), "4", {"answer": "4", "metadata": GYM}),
    (SoftOverlong(max_length=4, cache_length=2, column="num_tokens"), "4", {"num_tokens": 1}),
    (Psnr(), IMAGE, {"clean": IMAGE // 2}),
    (Ssim(), IMAGE, {"clean": IMAGE // 2}),
    (SquaredError(result="map"), IMAGE, {"clean": IMAGE // 2}),
    (UnitTests(), "```python\nx = 1\n```", {"tests": ["assert x == 1"]}),
]


@pytest.mark.parametrize(("reward", "completion", "columns"), CASES, ids=lambda value: getattr(value, "kind", ""))
def test_a_member_without_its_column_has_no_reward(reward: Any, completion: Any, columns: dict[str, Any]) -> None:
    for absent in columns:
        given = {name: [value, None if name == absent else value] for name, value in columns.items()}
        values = reward.open()(prompts=["?"] * 2, completions=[completion] * 2, **given)
        values = asyncio.run(values) if asyncio.iscoroutine(values) else values
        assert values[0] is not None
        assert values[1] is None


# Rewards of a user's own.


MODULE = """
def scaled(completions, factor=1.0, **columns):
    return [factor * len(text) for text in completions]

async def later(prompts, completions, answer, **columns):
    return [float(text == gold) for text, gold in zip(completions, answer)]

class Counter:
    def __init__(self, letter):
        self.letter = letter
    def __call__(self, completions, **columns):
        return [text.count(self.letter) for text in completions]

def each_one(prompt, response, answer):
    return len(prompt) + len(response) + answer

constant = 3
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_rewards.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.delitem(sys.modules, "own_rewards", raising=False)
    return "own_rewards"


def test_functions_and_classes_from_the_working_directory(own_module: str) -> None:
    rewards = {
        "scaled": CallableReward(path=f"{own_module}:scaled", arguments={"factor": 2.0}),
        "later": CallableReward(path=f"{own_module}:later"),
        "counter": CallableReward(path=f"{own_module}:Counter", arguments={"letter": "a"}),
    }
    table = score(rewards, ["p"] * 2, ["aa", "b"], {"answer": ["aa", "aa"], "factor": [9, 9]})
    assert table.values == {"scaled": [4.0, 2.0], "later": [1.0, 0.0], "counter": [2.0, 0.0]}


def test_one_member_at_a_time_as_source_003_writes_rewards(own_module: str) -> None:
    reward = CallableReward(path=f"{own_module}:each_one", each=True)
    table = score(
        {"r": reward},
        ["ab", [{"role": "user", "content": "abc"}]],
        ["x", [{"content": "xy"}]],
        {"answer": [10, 20], "level": [1, 2]},
    )
    assert table.values["r"] == [13.0, 25.0]
    with pytest.raises(RewardError, match="reward 'r' needs the column 'answer'"):
        score({"r": reward}, ["ab"], ["x"])


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("own_rewards:missing", {}, "has no 'missing'; it has Counter, each_one, later, scaled"),
        ("own_rewards:constant", {}, "is of type int and cannot be called"),
        ("own_rewards:Counter", {}, "does not take arguments = {}: .*letter"),
        ("own_rewards:each_one", {"word": 1}, "does not take arguments = {'word': 1}"),
        ("no_such_module:f", {}, "the module 'no_such_module' cannot be imported"),
        ("no_entry_point", {}, "no installed package brings it .entry points of 'groupwise.rewards'"),
    ],
)
def test_paths_that_lead_nowhere(own_module: str, path: str, arguments: dict, message: str) -> None:
    with pytest.raises(RewardError, match=f"reward 'mine': .*{message}"):
        Rewards({"mine": CallableReward(path=path, arguments=arguments)})


def test_an_entry_point_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("def price(completions):\n    return [1.5 for _ in completions]\n")
    installed(tmp_path, "shop", "groupwise.rewards", "price = shop:price")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_all_points", plugins._all_points.__wrapped__)
    assert score({"r": CallableReward(path="price")}, ["?"], ["a"]).values["r"] == [1.5]
    with pytest.raises(ConfigError, match=r"\(entry points of 'groupwise.rewards': price\).*did you mean price"):
        CallableReward(path="prize").open()
