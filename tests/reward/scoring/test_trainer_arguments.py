"""The arguments that come from the trainer: its state, and what rewards log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from groupwise.reward import CallableReward, RewardError, Rewards, RewardTable, score
from groupwise.reward.scoring.table import RewardLog, TrainerState

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


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_trainer_arguments_reach_the_reward_and_its_logged_values_return(isolation: str) -> None:
    path = "tests.reward.scoring.test_trainer_arguments:logging"
    reward = CallableReward(path=path, isolation=isolation)  # type: ignore[arg-type]
    with Rewards({"logging": reward}) as rewards:
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
    import threading

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
