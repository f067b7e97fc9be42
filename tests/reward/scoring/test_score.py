"""Scoring a batch with rewards that behave and rewards that do not."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy
import pytest
import torch

from groupwise.reward import (
    ExactAnswer,
    Length,
    Noted,
    RewardError,
    RewardEvent,
    Rewards,
    RewardTable,
    as_judge,
    score,
)
from groupwise.reward.base import Parted
from groupwise.reward.scoring.table import arguments_for, checked_values, needed_columns

PROMPTS = ["alpha question", "beta question"]
TEXTS = ["one", "one two"]


def test_values_weights_and_seconds_by_name() -> None:
    table = score(
        {"brief": Length(target=2, weight=3.0), "exact": ExactAnswer(weight=0.0)},
        PROMPTS,
        TEXTS,
        {"answer": ["one", "one"]},
    )
    assert table.values == {"brief": [0.5, 1.0], "exact": [1.0, 0.0]}
    assert table.weights == {"brief": 3.0, "exact": 0.0}
    assert table.total() == [1.5, 3.0]
    assert set(table.seconds) == {"brief", "exact"}


def test_functions_are_given_what_they_take_as_trl_gives_it() -> None:
    seen: dict[str, Any] = {}

    def everything(prompts, completions, answer, **columns):
        seen.update(prompts=prompts, completions=completions, answer=answer, columns=columns)
        return [0.0, 0.0]

    table = score(
        {"all": everything, "few": lambda completions: [1.0, None]}, PROMPTS, TEXTS, {"answer": [1, 2], "level": [3, 4]}
    )
    given = {name: seen["columns"].pop(name) for name in ("trainer_state", "log_metric", "log_extra")}
    assert seen == {"prompts": PROMPTS, "completions": TEXTS, "answer": [1, 2], "columns": {"level": [3, 4]}}
    assert given["trainer_state"].global_step == 0
    assert callable(given["log_metric"])
    assert callable(given["log_extra"])
    assert table.values["few"] == [1.0, None]
    assert [(event.name, event.member, event.prompt) for event in table.events] == [("missing", 1, "beta question")]


def test_objects_carry_their_settings() -> None:
    class Mine:
        weight = 2.0
        timeout_seconds = 5.0
        needs = ("level",)

        def __call__(self, **arguments: Any) -> list[float]:
            return [float(level) for level in arguments["level"]]

    assert score({"mine": Mine()}, PROMPTS, TEXTS, {"level": [1, 2]}).total() == [2.0, 4.0]


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(
        RewardError, match="reward 'exact' needs the column 'answer', which the data lacks; columns: level, topic"
    ):
        score({"exact": ExactAnswer()}, PROMPTS, TEXTS, {"topic": [1, 2], "level": [1, 2]})
    with (
        Rewards({"f": lambda completions, gold: [0.0]}) as rewards,
        pytest.raises(RewardError, match="reward 'f' needs the column 'gold'"),
    ):
        rewards.check_columns(["answer"])


def test_rewards_overlap_sync_and_async() -> None:
    """Each waits until all five have begun: one after the other, the first would wait for ever."""
    begun: list[int] = []

    def all_have(place: int) -> Iterator[None]:
        begun.append(place)
        until = time.monotonic() + 600
        while len(begun) < 5:
            assert time.monotonic() < until, "the others have not begun"
            yield

    def waits(completions: list[str]) -> list[float]:
        for _ in all_have(0):
            time.sleep(0.01)
        return [1.0, 1.0]

    async def waits_too(completions: list[str]) -> list[float]:
        for _ in all_have(1):
            await asyncio.sleep(0.01)
        return [2.0, 2.0]

    class AsyncObject:
        async def __call__(self, completions: list[str]) -> list[float]:
            return await waits_too(completions)

    table = score({"a": waits, "b": waits, "c": waits_too, "d": waits_too, "e": AsyncObject()}, PROMPTS, TEXTS)
    assert table.total() == [8.0, 8.0]
    assert set(table.seconds) == set("abcde")


def test_a_reward_that_raises_stops_the_run_and_is_named_with_its_line() -> None:
    def broken(completions: list[str]) -> list[float]:
        return [1 / 0 for _ in completions]

    with pytest.raises(
        RewardError, match=r"reward 'broken' raised ZeroDivisionError: division by zero \(at .*test_score.py:\d+ in "
    ) as caught:
        score({"fine": Length(), "broken": broken}, PROMPTS, TEXTS)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.reward == "broken"


def test_or_is_missing_and_counted() -> None:
    async def broken(completions: list[str]) -> list[float]:
        raise KeyError("colour")

    broken.on_error = "missing"  # type: ignore[attr-defined]
    broken.weight = 3.0  # type: ignore[attr-defined]
    table = score({"brief": Length(target=2), "broken": broken}, PROMPTS, TEXTS)
    assert table.values["broken"] == [None, None]
    assert table.total() == [0.5, 1.0]
    (event,) = table.events
    assert (event.name, event.reward, event.count) == ("error", "broken", 2)
    assert "KeyError: 'colour'" in event.detail


def test_a_column_that_is_read_and_not_there_is_named_with_those_that_are() -> None:
    def by_hand(**columns: list[str]) -> list[float]:
        return [float(value) for value in columns["solution"]]

    with pytest.raises(RewardError, match=r"KeyError: 'solution' .*; if 'solution' is a column, .*; columns: level$"):
        score({"by_hand": by_hand}, PROMPTS, TEXTS, {"level": [1, 2]})


def test_a_reward_that_ends_the_interpreter_only_raises() -> None:
    with pytest.raises(RewardError, match="raised SystemExit: 3"):
        score({"quits": lambda completions: sys.exit(3)}, PROMPTS, TEXTS)


class Hanging:
    """Really hangs on the batches it is told to."""

    timeout_seconds = 0.2

    def __init__(self, *hangs: bool) -> None:
        self.hangs = list(hangs)

    def __call__(self, completions: list[str]) -> list[float]:
        if self.hangs.pop(0):
            time.sleep(3600)
        return [1.0, 1.0]


def test_a_reward_that_hangs_is_missing_and_counted_and_the_run_goes_on() -> None:
    with Rewards({"hangs": Hanging(True, False), "brief": Length(target=2)}) as rewards:
        table = rewards.score(PROMPTS, TEXTS)
        assert table.values == {"hangs": [None, None], "brief": [0.5, 1.0]}
        assert table.total() == [0.5, 1.0]
        (event,) = table.events
        assert (event.name, event.reward, event.count, event.member) == ("timeout", "hangs", 2, None)
        rewards._rewards["hangs"].timeout_seconds = 60.0
        assert rewards.score(PROMPTS, TEXTS).values["hangs"] == [1.0, 1.0]


def test_async_ones_that_hang_are_cancelled_or_left() -> None:
    cancelled = threading.Event()

    async def polite(completions: list[str]) -> list[float]:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return [0.0, 0.0]

    async def rude(completions: list[str]) -> list[float]:
        time.sleep(3600)
        return [0.0, 0.0]

    async def quick(completions: list[str]) -> list[float]:
        return [1.0, 0.0]

    polite.timeout_seconds = rude.timeout_seconds = 0.2  # type: ignore[attr-defined]
    quick.timeout_seconds = 2.0  # type: ignore[attr-defined]
    with Rewards({"polite": polite}) as rewards:
        assert [event.name for event in rewards.score(PROMPTS, TEXTS).events] == ["timeout"]
        assert cancelled.wait(60)
    # One that blocks the event loop is left behind with it, and the next batch gets another.
    with Rewards({"rude": rude, "quick": quick}) as rewards:
        assert "rude" in [event.reward for event in rewards.score(PROMPTS, TEXTS).events]
        rude_reward = rewards._rewards.pop("rude")
        rewards._rewards["quick"].timeout_seconds = 60.0
        assert rewards.score(PROMPTS, TEXTS).values == {"quick": [1.0, 0.0]}
        assert rude_reward.job is None


def test_a_program_with_a_hung_reward_still_ends() -> None:
    program = textwrap.dedent("""
        import time
        from groupwise.reward import score
        def hangs(completions):
            time.sleep(3600)
        hangs.timeout_seconds = 0.2
        print(score({"hangs": hangs}, ["?"], ["a"]).values)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == "{'hangs': [None]}"


def test_judges_only_where_asked_for() -> None:
    rewards = {
        "brief": Length(target=2),
        "other": as_judge(Length(target=1, weight=5.0)),
        "plain": as_judge(lambda completions, answer: answer),
    }
    with Rewards(rewards) as opened:
        assert set(opened.score(PROMPTS, TEXTS).values) == {"brief"}
        table = opened.score(PROMPTS, TEXTS, {"answer": [7, 8]}, judges=True)
    assert table.values["other"] == [1.0, 0.0]
    assert table.values["plain"] == [7.0, 8.0]
    assert table.judges == {"other", "plain"}
    assert table.total() == [0.5, 1.0]


# Allowed and refused return values.


VALUES_PROMPTS = ["first prompt", "second prompt"]


@pytest.mark.parametrize(
    "returned",
    [
        [1, 0.5],
        (True, Fraction(1, 2)),
        [numpy.float32(1.0), torch.tensor(0.5)],
        [numpy.bool_(True), numpy.array(0.5)],
        torch.tensor([1.0, 0.5]),
        numpy.array([1.0, 0.5]),
    ],
)
def test_numbers_of_every_kind(returned: Any) -> None:
    values, events = checked_values("r", returned, VALUES_PROMPTS)
    assert values == [1.0, 0.5]
    assert all(type(value) is float for value in values)
    assert events == []


@pytest.mark.parametrize(
    ("bad", "message_part"),
    [
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (numpy.float32("-inf"), "-inf"),
        ("0.5", "'0.5' of type str"),
        ([0.5], r"\[0.5\] of type list"),
        (1j, "1j of type complex"),
        (Decimal("0.5"), "of type Decimal"),
        (10**400, "too large"),
        (Noted(float("nan"), "odd"), "nan"),
    ],
)
def test_anything_else_names_reward_prompt_member_value_and_what_is_allowed(bad: Any, message_part: str) -> None:
    with pytest.raises(RewardError, match=message_part) as caught:
        checked_values("brief", [0.0, bad], VALUES_PROMPTS)
    message = str(caught.value)
    assert "reward 'brief'" in message
    assert "member 1" in message
    assert "'second prompt'" in message
    assert "allowed: a finite number, a bool, or None" in message
    assert (caught.value.reward, caught.value.member, caught.value.prompt) == ("brief", 1, "second prompt")


NO_LISTS: list[Any] = [None, 1.0, "ab", {0: 1.0, 1: 1.0}, (value for value in (1.0, 2.0)), torch.tensor(1.0)]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        *(([0.0] * length, f"reward 'r' returned {length} values for 2 members") for length in (0, 1, 3)),
        *((returned, "write a list with one entry a member") for returned in NO_LISTS),
    ],
)
def test_no_list_and_another_length(returned: Any, message: str) -> None:
    with pytest.raises(RewardError, match=message):
        checked_values("r", returned, VALUES_PROMPTS)


def test_missing_ones_are_counted_and_remarks_kept() -> None:
    values, events = checked_values("r", [None, Noted(0.5, "late", "9 s")], VALUES_PROMPTS)
    assert values == [None, 0.5]
    assert [(event.name, event.member, event.count, event.detail) for event in events] == [
        ("late", 1, 1, "9 s"),
        ("missing", 0, 1, ""),
    ]


# Which columns a reward needs and is given.


def test_needs() -> None:
    assert needed_columns(lambda prompts, completions, a, b=1, *rest, c, **more: None) == ("a", "c")
    assert needed_columns(functools.partial(lambda completions, a, b: None, b=1)) == ("a",)
    assert needed_columns(ExactAnswer(column="gold")) == ("gold",)
    # What a partial holds wins over a column.
    function = functools.partial(lambda completions, **columns: columns, word="mine")
    assert arguments_for(function, {"completions": [], "word": ["theirs"], "x": [1]}) == {"completions": [], "x": [1]}


# Weighted sums with missing rewards, worked by hand.


VALUES: dict[str, list[float | None]] = {
    "a": [1.0, None, 1.0, None],
    "b": [2.0, 2.0, None, None],
    "c": [-1.0, -1.0, -1.0, None],
}
WEIGHTS = {"a": 2.0, "b": 1.0, "c": -1.0}


def test_a_member_that_lacks_a_reward_has_no_sum_or_that_of_the_others() -> None:
    # Complete: 2 + 2 + 1. Without a: 2 + 1. Without b: 2 + 1. Without any: none.
    assert RewardTable(VALUES, WEIGHTS).total() == [5.0, None, None, None]
    assert RewardTable(VALUES, WEIGHTS).total(partial="sum") == [5.0, 3.0, 3.0, None]
    # The third is a group of its own, which b says nothing about.
    assert RewardTable(VALUES, WEIGHTS).total(groups=["x", "x", "y", "x"]) == [5.0, None, 3.0, None]


def test_the_objective_forms_the_same_sum() -> None:
    import torch

    from groupwise.objective.batch import grouped_rewards
    from groupwise.records import Rollouts

    rollouts = Rollouts(
        torch.zeros(4, dtype=torch.long), torch.ones(4, 1, dtype=torch.bool), torch.zeros(4, 1), VALUES, WEIGHTS
    )
    for partial in ("drop", "sum"):
        theirs = grouped_rewards(rollouts, partial, lambda tensor: tensor)
        ours = RewardTable(VALUES, WEIGHTS).total(partial)
        assert theirs.present[:, 0].tolist() == [value is not None for value in ours]
        assert theirs.value[:3, 0].tolist() == pytest.approx([value or 0.0 for value in ours[:3]])


def test_weights_of_zero_and_judges_are_out_of_the_sum_and_a_table_is_checked() -> None:
    table = RewardTable({"a": [1.0, None], "j": [9.0, 5.0]}, {"a": 1.0, "j": 7.0}, judges=frozenset({"j"}))
    assert (table.total(), table.weights["j"], table.metrics()["rewards/j/mean"]) == ([1.0, None], 0.0, 7.0)
    with pytest.raises(RewardError, match="no reward has a weight other than 0"):
        RewardTable({"a": [1.0]}, {"a": 0.0}).total()
    with pytest.raises(RewardError, match=r"lengths \{'a': 1, 'b': 2\}"):
        RewardTable({"a": [1.0], "b": [1.0, 2.0]})
    with pytest.raises(RewardError, match=r"weights name \['b'\]"):
        RewardTable({"a": [1.0]}, {"b": 1.0})


def test_metrics_are_of_each_reward_by_itself() -> None:
    events = [
        RewardEvent("timeout", "b", count=2),
        RewardEvent("odd", "a", member=0),
        RewardEvent("odd", "a", member=1),
    ]
    metrics = RewardTable({"a": [1.0, 3.0, None], "b": [None, None, None]}, events=events, seconds={"a": 0.5}).metrics()
    of_a = {"mean": 2.0, "std": 1.0, "missing": 1 / 3, "seconds": 0.5, "num_odd": 2.0}
    of_b = {"rewards/b/missing": 1.0, "rewards/b/num_timeout": 2.0}
    assert metrics == pytest.approx({f"rewards/a/{name}": value for name, value in of_a.items()} | of_b)


def test_joining_and_selecting() -> None:
    first_table = RewardTable({"a": [1.0, None]}, {"a": 2.0}, [RewardEvent("missing", "a", member=1)], {"a": 1.0})
    joined = RewardTable.concatenate([first_table, first_table])
    assert joined.values == {"a": [1.0, None, 1.0, None]}
    assert [event.member for event in joined.events] == [1, 3]
    assert joined.seconds == {"a": 2.0}
    assert joined.select([2, 0, 1]).total() == [2.0, 2.0, None]
    with pytest.raises(RewardError, match="different rewards"):
        RewardTable.concatenate([first_table, RewardTable({"a": [1.0]}, {"a": 1.0})])


def test_a_judge_keeps_what_is_bound_in_it() -> None:
    right = functools.partial(lambda completions, answer: [float(text in answer) for text in completions], answer=["x"])
    right.timeout_seconds = 5.0  # type: ignore[attr-defined]
    table = score({"brief": Length(target=1), "j": as_judge(right)}, ["?"], ["x"], {"answer": ["y"]}, judges=True)
    assert table.values["j"] == [1.0]


def test_a_reward_that_ends_too_late_leaves_nothing_in_the_table() -> None:
    given_up, ended = threading.Event(), threading.Event()

    def late(completions: Sequence[str]) -> Parted:
        given_up.wait(60)
        ended.set()
        return Parted([1.0] * len(completions), {"part": [1.0] * 5})

    def slower(completions: Sequence[str]) -> list[float]:
        ended.wait(60)
        time.sleep(0.1)
        return [0.0] * len(completions)

    late.timeout_seconds = 0.2  # type: ignore[attr-defined]
    late.cancel = given_up.set  # type: ignore[attr-defined]
    table = score({"late": late, "slower": slower}, ["?"], ["a"])
    assert (table.values, table.fields) == ({"late": [None], "slower": [0.0]}, {})
