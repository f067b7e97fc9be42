"""What live diagnosis keeps of a stage does not grow with its steps, and what the rules read is what all rows would
have said.
"""

from __future__ import annotations

import gc
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise_look.diagnosis import RULES, WINDOW, Series, Watch
from groupwise_look.diagnosis.series import Spread, Windows

NUMBERS = st.lists(st.floats(-100, 100), max_size=15 * WINDOW)


def series(values: list[float]) -> Series:
    return Series("reward", list(range(len(values))), values)


@settings(deadline=None)
@given(NUMBERS)
def test_windows_are_those_of_the_whole(values: list[float]) -> None:
    windows = Windows("reward")
    for step, value in enumerate(values):
        windows.add(step, value)
    whole = [
        Series("reward", list(range(at, at + WINDOW)), values[at : at + WINDOW])
        for at in range(0, len(values) - WINDOW + 1, WINDOW)
    ]
    assert windows.newest == (whole[-1] if whole else None)
    assert windows.best == (max(whole[:-1], key=lambda window: window.mean) if whole[1:] else None)
    assert windows.risen == (bool(whole[1:]) and any(window.above(series(values[: 2 * WINDOW])) for window in whole))


@given(num=st.integers(1, 300), most=st.integers(2, 40), count=st.integers(1, 12), skip=st.integers(0, 300))
def test_a_spread_holds_the_first_and_the_newest_evenly_and_no_more(num: int, most: int, count: int, skip: int) -> None:
    spread = Spread("kl", most)
    for step in range(num):
        spread.add(step, float(step))
    kept = list(spread.series.steps)
    assert (kept[0], kept[-1], spread.count) == (0, num - 1, num)
    assert len(kept) <= most + 1
    assert len({after - before for before, after in itertools.pairwise(kept[:-1])}) <= 1
    before = spread.before(count, skip)
    if before is not None:
        assert len(before) == count
        assert num - skip - 2 * -(-num // most) <= before.steps[-1] < num - skip
    if num <= most:
        assert (None if before is None else before.steps) == (
            list(range(num - skip - count, num - skip)) if num - skip >= count else None
        )


@pytest.mark.slow
def test_a_watch_holds_as_much_after_four_thousand_steps_as_after_two_thousand() -> None:
    draw = random.Random(0)
    names = [
        name for rule in RULES for name in rule.reads if "NAME" not in name and "JUDGE" not in name and name != "kl"
    ]
    watch, counts = Watch(), []
    for step in range(1, 4001):
        row: dict[str, object] = {name: draw.random() for name in names}
        watch.see({"step": step, "stage": "grpo", **row, **({"eval/greedy/reward": draw.random()} if step % 2 else {})})
        if step % 2000 == 0:
            counts.append(num_objects(watch))
    assert counts[1] <= counts[0] + 100, counts


def num_objects(root: object) -> int:
    """Objects that are reached from this one by what it holds, classes and functions apart."""
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        for each in gc.get_referents(waiting.pop()):
            if (
                id(each) not in seen
                and not isinstance(each, type)
                and not callable(each)
                and type(each).__name__ != "module"
            ):
                seen[id(each)] = each
                waiting.append(each)
    return len(seen)
