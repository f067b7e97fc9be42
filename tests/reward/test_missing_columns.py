"""A row whose column is None has nothing to be compared with: its members have no reward, the others keep theirs."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from groupwise.reward import (
    ExactAnswer,
    Judge,
    KnightsAndKnaves,
    MathVerify,
    NumericAnswer,
    ReasoningGym,
    SoftOverlong,
    UnitTests,
)
from groupwise_images.reward.similarity import Psnr, SquaredError, Ssim

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


def test_a_judge_is_asked_nothing_about_a_row_without_its_column() -> None:
    judge = Judge(address="http://127.0.0.1:9/v1", model="m", template="{completion} {answer}", num_retries=0)
    assert asyncio.run(judge(["?"], ["4"], answer=[None])) == [None]
