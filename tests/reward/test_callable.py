"""Rewards of a user's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.packages import installed

from groupwise import plugins
from groupwise.config import ConfigError
from groupwise.reward import CallableReward, RewardError, Rewards, score

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


def test_in_a_process_of_its_own(own_module: str) -> None:
    reward = CallableReward(path=f"{own_module}:scaled", arguments={"factor": 0.5}, isolation="process")
    assert score({"r": reward}, ["p"], ["aa"]).values["r"] == [1.0]


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


def test_a_module_that_breaks_while_imported(own_module: str) -> None:
    Path("own_rewards.py").write_text("1 / 0")
    with pytest.raises(RewardError, match="ZeroDivisionError: division by zero"):
        Rewards({"mine": CallableReward(path="own_rewards:f")})


def test_an_entry_point_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("def price(completions):\n    return [1.5 for _ in completions]\n")
    installed(tmp_path, "shop", "groupwise.rewards", "price = shop:price")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_all_points", plugins._all_points.__wrapped__)
    assert score({"r": CallableReward(path="price")}, ["?"], ["a"]).values["r"] == [1.5]
    with pytest.raises(ConfigError, match=r"\(entry points of 'groupwise.rewards': price\).*did you mean price"):
        CallableReward(path="prize").open()
