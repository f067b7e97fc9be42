"""Rewards that remember: what nobody would keep is refused, and what their methods raise is told by their name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from groupwise.reward import CallableReward, RewardError, Rewards
from groupwise.reward.base import Parted

HERE = "tests.reward.scoring.test_memory"


class Counts:
    """Counts the batches that training has seen."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, completions: list[str], **columns: Any) -> Any:
        return Parted([float(self.seen)] * len(completions), {"length": [float(len(text)) for text in completions]})

    def memory(self) -> dict[str, Any]:
        return {"seen": self.seen} if self.seen else {}

    def recall(self, memory: Mapping[str, Any]) -> None:
        self.seen = memory.get("seen", 0)

    def follow(self, groups: Any) -> Any:
        self.seen += 1
        return {"seen": self.seen}


class Forgetful(Counts):
    """Has no recall."""

    recall: Any = None


class OnlyFollows:
    """Keeps what it follows where no checkpoint finds it."""

    def __call__(self, completions: list[str], **columns: Any) -> Any:
        return [1.0] * len(completions)

    def follow(self, groups: Any) -> Any:
        return {}


class Finds:
    """Measures what was found, and remembers nothing."""

    def __call__(self, completions: list[str], **columns: Any) -> Any:
        return [self.recall(text) for text in completions]

    def recall(self, text: str) -> float:
        return 1.0


class Plain(Counts):
    """Returns no fields, so that nothing is followed."""

    def __call__(self, completions: list[str], **columns: Any) -> Any:
        return [1.0] * len(completions)


class Short(Counts):
    """Returns a field of some members."""

    def __call__(self, completions: list[str], **columns: Any) -> Any:
        return Parted([1.0] * len(completions), {"length": [1.0]})


class Silent(Counts):
    """Says nothing of itself where it should say {}."""

    def follow(self, groups: Any) -> Any:
        return None


class Fails(Counts):
    """Reads a key that no memory has at the start, and a field that is not there."""

    def recall(self, memory: Mapping[str, Any]) -> None:
        self.seen = memory["seen"]

    def follow(self, groups: Any) -> Any:
        return groups[0]["words"]


GROUPS = {"own": [{"length": [1.0, 2.0]}]}


def scored(rewards: Rewards) -> object:
    return rewards.score(["", ""], ["a", "ab"])


def test_a_reward_follows_remembers_and_recalls() -> None:
    with Rewards({"own": Counts(), "other": lambda completions: [0.0] * len(completions)}) as rewards:
        assert rewards.follows
        assert rewards.memory() == {}
        scored(rewards)
        assert rewards.follow(GROUPS) == {"rewards/own/seen": 1}
        assert rewards.memory() == {"own": {"seen": 1}}
        rewards.recall({})
        assert rewards.memory() == {}


@pytest.mark.parametrize(
    ("reward", "attempt", "said"),
    [
        (Forgetful, scored, "reward 'own' has follow and memory, and no recall; a reward that remembers has follow, m"),
        (OnlyFollows, scored, "reward 'own' has follow, and no memory and no recall; a reward that remembers has f"),
        (
            Plain,
            scored,
            "reward 'own' has follow, which is given the fields of what it returns, and returned a list; r",
        ),
        (Short, scored, "reward 'own' returned 1 values of the field 'length' for 2 members; write one entry a member"),
        (Silent, lambda rewards: rewards.follow(GROUPS), "reward 'own': follow returned None; return numbers by name"),
        (Fails, lambda rewards: rewards.follow(GROUPS), "reward 'own': follow raised KeyError: 'words' (at "),
        (Fails, lambda rewards: rewards.recall({}), "reward 'own': recall raised KeyError: 'seen' (at "),
    ],
)
def test_what_would_be_forgotten_is_refused(reward: Any, attempt: Callable[[Rewards], object], said: str) -> None:
    with pytest.raises(RewardError) as caught, Rewards({"own": reward()}) as rewards:
        attempt(rewards)
    assert str(caught.value).startswith(said)


def test_a_method_that_is_called_like_one_of_memory_is_no_memory() -> None:
    with Rewards({"own": Finds()}) as rewards:
        assert not rewards.follows
        scored(rewards)


@pytest.mark.parametrize("how", [{"each": True}, {"isolation": "process"}])
def test_what_remembers_is_called_with_whole_batches_in_this_process(how: dict[str, Any]) -> None:
    reward = CallableReward(path=f"{HERE}:Counts", **how)
    with pytest.raises(RewardError, match="a reward that remembers") as caught, Rewards({"own": reward}) as rewards:
        scored(rewards)
    assert f"drop {next(iter(how))}" in str(caught.value)
