"""What a reward may return and what it may not."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy
import pytest
import torch

from groupwise.reward import Noted, RewardError
from groupwise.reward.scoring.table import checked_values

PROMPTS = ["first prompt", "second prompt"]


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
    values, events = checked_values("r", returned, PROMPTS)
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
        checked_values("brief", [0.0, bad], PROMPTS)
    message = str(caught.value)
    assert "reward 'brief'" in message
    assert "member 1" in message
    assert "'second prompt'" in message
    assert "allowed: a finite number, a bool, or None" in message
    assert (caught.value.reward, caught.value.member, caught.value.prompt) == ("brief", 1, "second prompt")


@pytest.mark.parametrize("length", [0, 1, 3])
def test_another_length(length: int) -> None:
    with pytest.raises(RewardError, match=f"reward 'r' returned {length} values for 2 members"):
        checked_values("r", [0.0] * length, PROMPTS)


@pytest.mark.parametrize(
    "returned", [None, 1.0, "ab", {0: 1.0, 1: 1.0}, (value for value in (1.0, 2.0)), torch.tensor(1.0)]
)
def test_no_list(returned: Any) -> None:
    with pytest.raises(RewardError, match="write a list with one entry a member"):
        checked_values("r", returned, PROMPTS)


def test_missing_ones_are_counted_and_remarks_kept() -> None:
    values, events = checked_values("r", [None, Noted(0.5, "late", "9 s")], PROMPTS)
    assert values == [None, 0.5]
    assert [(event.name, event.member, event.count, event.detail) for event in events] == [
        ("late", 1, 1, "9 s"),
        ("missing", 0, 1, ""),
    ]
