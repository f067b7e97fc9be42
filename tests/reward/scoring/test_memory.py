"""Rewards that remember: what nobody would keep is refused, and what their methods raise is told by their name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.reward import CallableReward, Reward, RewardError, Rewards, RewardTable, score
from groupwise.reward.base import Parted
from groupwise.reward.scoring.table import RewardLog, TrainerState


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


def altered(**methods: Any) -> Any:
    """The reward above, with other methods."""
    return type("Altered", (Counts,), methods)()


class Finds:
    """Measures what was found, and remembers nothing."""

    def __call__(self, completions: list[str], **columns: Any) -> Any:
        return [self.recall(text) for text in completions]

    def recall(self, text: str) -> float:
        return 1.0


def follows(rewards: Rewards) -> object:
    return rewards.follow(GROUPS)


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


METHODS = "reward 'own' has {}; a reward that remembers has follow, m"
FIELDS = "reward 'own' has follow, which is given the fields of what it returns, and returned a list; r"
LENGTH = "reward 'own' returned 1 values of the field 'length' for 2 members; write one entry a member"


@pytest.mark.parametrize(
    ("reward", "attempt", "said"),
    [
        (altered(recall=None), scored, METHODS.format("follow and memory, and no recall")),
        (altered(recall=None, memory=None), scored, METHODS.format("follow, and no memory and no recall")),
        (altered(__call__=lambda self, completions, **columns: [1.0] * 2), scored, FIELDS),
        (altered(__call__=lambda self, completions, **c: Parted([1.0] * 2, {"length": [1.0]})), scored, LENGTH),
        (altered(follow=lambda self, groups: None), follows, "reward 'own': follow returned None; return numbers by n"),
        (altered(follow=lambda self, groups: groups[0]["words"]), follows, "reward 'own': follow raised KeyError: 'wo"),
        (
            altered(recall=lambda self, memory: memory["seen"]),
            lambda rewards: rewards.recall({}),
            "reward 'own': recall raised KeyError: 'seen' (at ",
        ),
    ],
)
def test_what_would_be_forgotten_is_refused(reward: Any, attempt: Callable[[Rewards], object], said: str) -> None:
    with pytest.raises(RewardError) as caught, Rewards({"own": reward}) as rewards:
        attempt(rewards)
    assert str(caught.value).startswith(said)


def test_a_method_that_is_called_like_one_of_memory_is_no_memory() -> None:
    with Rewards({"own": Finds()}) as rewards:
        assert not rewards.follows
        scored(rewards)


def test_what_remembers_is_called_with_whole_batches() -> None:
    with pytest.raises(RewardError, match=r"a reward that remembers .* drop each"):
        Rewards({"own": CallableReward(path="tests.reward.scoring.test_memory:Counts", each=True)})


# A reward that changes its arguments in place changes no other reward's, no record and no row of the caller.


class Inverting(Reward):
    """A configured reward of another package."""

    kind: str = "inverting"

    def __call__(self, prompts: Any, completions: Any, **columns: Any) -> list[float]:
        return spoil(prompts, completions, **columns)


def spoil(prompts: Any, completions: Any, **columns: Any) -> list[float]:
    for picture, target, tags in zip(completions, columns["clean"], columns["tags"], strict=True):
        picture.zero_()
        target[:] = 0
        tags["words"].clear()
    prompts[0].append({"role": "user", "content": "changed"})
    return [0.0] * len(completions)


def test_no_reward_sees_what_another_changed() -> None:
    spoiled = threading.Event()

    def first(prompts: Any, completions: Any, **columns: Any) -> list[float]:
        values = spoil(prompts, completions, **columns)
        spoiled.set()
        return values

    def second(prompts: Any, completions: Any, **columns: Any) -> list[float]:
        assert spoiled.wait(60)
        words = [len(tags["words"]) for tags in columns["tags"]]
        return [
            float(picture.float().mean() + target.mean()) + count + len(prompts[0])
            for picture, target, count in zip(completions, columns["clean"], words, strict=True)
        ]

    pictures = [torch.full((4, 4), 100, dtype=torch.uint8) for _ in range(2)]
    columns = {"clean": [np.full(2, 10.0)] * 2, "tags": [{"words": ["a"]}] * 2}
    prompts = [[{"role": "user", "content": "a cat"}]] * 2
    with Rewards({"first": first, "kind": Inverting(), "second": second}) as rewards:
        assert rewards.score(prompts, pictures, columns).values["second"] == [112.0, 112.0]
    assert [int(picture.min()) for picture in pictures] == [100, 100]
    assert columns["tags"][0]["words"] == ["a"]
    assert [len(prompt) for prompt in prompts] == [1, 1]


# The arguments that come from the trainer: its state, and what rewards log.


PROMPTS, TEXTS = ["a", "b"], ["4", "5"]


def logging(
    completions: list[str],
    trainer_state: Any,
    log_metric: Any,
    log_extra: Any = None,
    completion_ids: Any = ((), ()),
) -> list[float]:
    log_metric("lucky", np.float32(0.25))
    log_metric("lucky", 0.75)
    log_metric("broken", float("nan"))
    log_extra("length", np.array([len(text) for text in completions]))
    log_extra("object", [{1}, None])
    return [float(trainer_state.global_step + len(ids)) for ids in completion_ids]


def test_trainer_arguments_reach_the_reward_and_its_logged_values_return() -> None:
    with Rewards({"logging": logging}) as rewards:
        rewards.check_columns(["answer"])
        rewards.state = TrainerState(global_step=7, max_steps=10)
        table = rewards.score(PROMPTS, TEXTS, {"completion_ids": [[1, 2], [3]]})
    assert table.values == {"logging": [9.0, 8.0]}
    assert table.logged == {"lucky": [0.25, 0.75]}
    assert table.extras == {"length": [1, 1], "object": ["{1}", None]}
    assert table.metrics()["logged/lucky"] == 0.5


def test_a_column_of_another_length_is_refused() -> None:
    def short(completions: list[str], log_extra: Any) -> list[float]:
        log_extra("seen", [1])
        return [0.0, 0.0]

    with pytest.raises(RewardError, match=r"reward 'short': log_extra\('seen', ...\) got 1 entries for 2 members"):
        score({"short": short}, PROMPTS, TEXTS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda log: log.log_metric("a", "high"), r"log_metric\('a', 'high'\) takes a name and a number"),
        (lambda log: log.log_metric(3, 0.5), r"log_metric\(3, 0.5\) takes a name and a number"),
        (lambda log: log.log_extra("a", "text"), r"log_extra\('a', 'text'\) takes a column's name and a list"),
        (lambda log: log.log_extra("a", 3), r"log_extra\('a', 3\) takes a column's name and a list"),
    ],
)
def test_what_cannot_be_logged_is_refused(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call(RewardLog())


def test_what_a_late_call_logs_is_not_taken() -> None:
    ended = threading.Event()

    def late(completions: list[str], log_extra: Any) -> list[float]:
        ended.wait(120)
        log_extra("seen", [1])
        return [0.0, 0.0]

    late.timeout_seconds = 0.1  # type: ignore[attr-defined]
    table = score({"late": late}, PROMPTS, TEXTS)
    ended.set()
    assert table.extras == {}
    assert [event.name for event in table.events] == ["timeout"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("completion_ids", "which a language model writes and this domain has not"),
        ("environments", "TRL's environments, which are not passed here"),
        ("prompt", "write prompts"),
        ("completion", "write completions"),
    ],
)
def test_nobody_is_sent_to_the_data_for_what_a_trainer_passes(name: str, words: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def reward({name}):\n    return [0.0, 0.0]", namespace)
    with pytest.raises(RewardError, match=words) as told:
        score({"reward": namespace["reward"]}, PROMPTS, TEXTS, {"answer": [1, 2]})
    assert "data lacks" not in str(told.value)


def test_tables_are_selected_and_joined_with_what_was_logged() -> None:
    one = RewardTable({"a": [1.0, 0.0]}, logged={"n": [1.0]}, extras={"seen": ["x", "y"]})
    two = RewardTable({"a": [1.0]}, logged={"m": [3.0]})
    both = RewardTable.concatenate([one, two])
    assert both.logged == {"n": [1.0], "m": [3.0]}
    assert both.extras == {"seen": ["x", "y", None]}
    assert both.select([2, 1]).extras == {"seen": [None, "y"]}
