"""Scoring a batch with rewards that behave and rewards that do not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from groupwise.reward import ExactAnswer, Length, RewardError, Rewards, as_judge, needed_by, score, trained_on

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
    assert trained_on({"brief": Length(), "exact": ExactAnswer(weight=0.0)}) == ("brief",)


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


def test_a_function_that_changes_what_it_is_given_changes_nothing_of_another() -> None:
    changed = threading.Event()

    def greedy(prompts, completions, answer):
        prompts.clear()
        completions.clear()
        answer.pop()
        changed.set()
        return [1.0, 1.0]

    seen: list[Any] = []

    def other(prompts, completions, answer):
        assert changed.wait(60)
        seen.extend((prompts, completions, answer))
        return [0.0, 0.0]

    table = score({"greedy": greedy, "other": other}, PROMPTS, TEXTS, {"answer": ["one", "two"]})
    assert table.values == {"greedy": [1.0, 1.0], "other": [0.0, 0.0]}
    assert seen == [PROMPTS, TEXTS, ["one", "two"]]


def test_objects_carry_their_settings() -> None:
    class Mine:
        weight = 2.0
        timeout_seconds = 5.0
        needs = ("level",)

        def __call__(self, **arguments: Any) -> list[float]:
            return [float(level) for level in arguments["level"]]

    assert score({"mine": Mine()}, PROMPTS, TEXTS, {"level": [1, 2]}).total() == [2.0, 4.0]
    assert needed_by({"mine": Mine()}) == {"mine": ("level",)}


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


def test_columns_of_another_length() -> None:
    with pytest.raises(RewardError, match=r"'completions': 2, 'answer': 1"):
        score({"brief": Length()}, PROMPTS, TEXTS, {"answer": [1]})


def test_no_members() -> None:
    table = score({"brief": Length()}, [], [])
    assert table.values == {"brief": []}
    assert table.total() == []


def test_rewards_overlap_sync_and_async() -> None:
    """Each waits until all five have begun: one after the other, the first would wait for ever."""
    begun: list[int] = []

    def all_have(place: int) -> Iterator[None]:
        begun.append(place)
        until = time.monotonic() + 60
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


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "good"])
def test_a_value_that_is_no_reward_is_an_error_even_where_exceptions_are_not(bad: object) -> None:
    def odd(completions: list[str]) -> list[object]:
        return [0.0, bad]

    odd.on_error = "missing"  # type: ignore[attr-defined]
    with pytest.raises(RewardError, match=r"reward 'odd' gave .* for member 1 \(prompt: 'beta question'\)"):
        score({"odd": odd}, PROMPTS, TEXTS)


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


def test_time_is_counted_from_the_start_for_all_at_once() -> None:
    begun = threading.Semaphore(0)

    class Late:
        timeout_seconds = 2.0

        def __call__(self, completions: list[str]) -> list[float]:
            begun.release()
            time.sleep(3600)
            return [1.0, 1.0]

    began = time.monotonic()
    table = score({str(name): Late() for name in range(60)}, PROMPTS, TEXTS)
    assert table.total() == [None, None]
    assert all(begun.acquire(timeout=60) for _ in range(60))
    assert time.monotonic() - began < 100, "one after the other they would take 120 s"


def test_a_timeout_says_what_helps() -> None:
    event = score({"hangs": Hanging(True)}, PROMPTS, TEXTS).events[0]
    assert (
        event.detail
        == 'longer than 0.2 s for a batch of 2; raise its timeout_seconds, or write isolation = "process" so that what'
        " hangs is killed"
    )


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
        assert rude_reward.worker is None


def test_async_ones_are_awaited_together_in_one_loop() -> None:
    both_wait = asyncio.Barrier(2)  # bound to the loop that waits there first

    async def first(completions: list[str]) -> list[float]:
        await both_wait.wait()
        return [1.0, 0.0]

    async def second(completions: list[str]) -> list[float]:
        await both_wait.wait()
        return [0.0, 1.0]

    first.timeout_seconds = second.timeout_seconds = 30.0  # type: ignore[attr-defined]
    with Rewards({"first": first, "second": second}) as rewards:
        for _ in range(2):
            table = rewards.score(PROMPTS, TEXTS)
            assert table.values == {"first": [1.0, 0.0], "second": [0.0, 1.0]}
            assert not table.events


def test_a_program_with_a_hung_reward_still_ends() -> None:
    program = textwrap.dedent("""
        import time
        from groupwise.reward import score
        def hangs(completions):
            time.sleep(3600)
        hangs.timeout_seconds = 0.2
        print(score({"hangs": hangs}, ["?"], ["a"]).values)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "{'hangs': [None]}"


def test_judges_only_where_asked_for() -> None:
    rewards = {
        "brief": Length(target=2),
        "other": as_judge(Length(target=1, weight=5.0)),
        "plain": as_judge(lambda completions, answer: answer),
    }
    assert trained_on(rewards) == ("brief",)
    with Rewards(rewards) as opened:
        assert set(opened.score(PROMPTS, TEXTS).values) == {"brief"}
        table = opened.score(PROMPTS, TEXTS, {"answer": [7, 8]}, judges=True)
    assert table.values["other"] == [1.0, 0.0]
    assert table.values["plain"] == [7.0, 8.0]
    assert table.judges == {"other", "plain"}
    assert table.total() == [0.5, 1.0]


def test_chats() -> None:
    prompts = [[{"role": "user", "content": "2 + 2?"}]] * 2
    completions = [[{"role": "assistant", "content": "4"}], [{"role": "assistant", "content": "5"}]]
    assert score({"exact": ExactAnswer()}, prompts, completions, {"answer": [4, 4]}).values["exact"] == [1.0, 0.0]


def test_no_reward_at_all() -> None:
    with pytest.raises(RewardError, match="reward 'x' is of type int"):
        Rewards({"x": 3})  # type: ignore[dict-item]
