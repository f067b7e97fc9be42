"""Rows of Logic-RL's parquet files, which source 000 trains on, as they lie in its repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupwise.domain.language.source.base import Files
from groupwise.domain.language.writer.knights_and_knaves import from_logic_rl
from groupwise.reward.texts.knights_and_knaves import KnightsAndKnaves

QUIZ = "Zoey says: Oliver is a knave. So who is a knight and who is a knave?"
TRUTH = "(1) Zoey is a knight\n(2) Oliver is a knave"


@pytest.mark.parametrize("left_out", [(), ("quiz",), ("solution_text_format",), ("quiz", "solution_text_format")])
@pytest.mark.parametrize("rendered", [True, False])
def test_a_row_gives_the_puzzle_and_the_roles_however_its_prompt_was_written(
    tmp_path: Path, left_out: tuple[str, ...], rendered: bool
) -> None:
    chat = f"<|im_start|>system\nThink.<|im_end|>\n<|im_start|>user\n{QUIZ}\n<|im_end|>\n<|im_start|>assistant\n<think>"
    row: dict[str, Any] = {
        "quiz": QUIZ,
        "solution_text_format": TRUTH,
        "prompt": [{"role": "user", "content": chat if rendered else QUIZ}],
        "reward_model": {"style": "rule", "ground_truth": {"solution_text_format": TRUTH, "statements": "()"}},
    }
    kept = {name: value for name, value in row.items() if name not in left_out}
    pq.write_table(pa.Table.from_pylist([kept]), tmp_path / "train.parquet")
    (read,) = Files(paths=(str(tmp_path / "train.parquet"),)).rows(None, 0)
    found = from_logic_rl(read)
    assert (found["prompt"], found["answer"]) == (QUIZ, TRUTH)
    right = f"<think>cases</think> <answer>{TRUTH}</answer>"
    assert KnightsAndKnaves()([""] * 2, [right, right.replace("a knave<", "a knight<")], answer=[TRUTH] * 2) == [
        3,
        -0.5,
    ]
