"""The lowest and highest value of every reward that has others than 0 and 1: they follow its settings and reach what
counts groups.
"""

from __future__ import annotations

import pytest

from groupwise.config import Config, ConfigError, validate
from groupwise.reward import (
    CallableReward,
    Coherence,
    ExactAnswer,
    Format,
    KnightsAndKnaves,
    Repetition,
    RewardTable,
    SoftOverlong,
    UnitTests,
    score,
)


def test_ends_follow_the_settings() -> None:
    assert ExactAnswer().ends == (0.0, 1.0)
    assert KnightsAndKnaves().ends == (-3.0, 3.0)
    assert KnightsAndKnaves(answer_right=5.0, format_wrong=0.0).ends == (-2.0, 6.0)
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


def test_bounds_out_of_order_are_refused() -> None:
    class Holder(Config):
        reward: CallableReward

    with pytest.raises(
        ConfigError,
        match=r"bounds = \[1.0, -1.0\]: the lowest value stands first, and below the highest; write for example",
    ):
        validate(Holder, {"reward": {"kind": "callable", "path": "a:b", "bounds": [1.0, -1.0]}})
