"""Answers of a language model that are kept on disk: a run ends with the same bits whatever of them is there, killed or
not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.faults.domains import everything, killed_and_resumed, start, untouched
from tests.faults.processes import in_a_process

from groupwise_selection.task_model.cache import AnswerFile
from groupwise_selection.task_model.config import TEMPLATE, TicketLM

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Support tickets, sent by a small language model from its folder, in fp32, with probabilities in the rewards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GROUPWISE_CACHE", str(tmp_path_factory.mktemp("models")))
        from groupwise_selection.task_model.ticket_lm import trained_folder

        path = trained_folder(TicketLM(width=32, num_steps=5, batch_size=4))
    return {
        "method": "grpo",
        "advantage": {"kind": "centred"},
        "domain": {
            "kind": "selection",
            "shots": 3,
            "model": {"kind": "pointer", "width": 16},
            "source": {"kind": "tickets", "num_train": 24, "num_validation": 2, "num_held_out": 8},
            "task_model": {"kind": "causal_lm", "path": str(path), "template": TEMPLATE.model_dump(mode="json")},
            "prefix": {},
            "rewards": {"vqa": {"kind": "vqa", "mode": {"kind": "expected"}}},
            "evaluation": {"validation": False, "tables": False},
        },
        "train": {"num_steps": 6, "prompts_per_step": 4, "group_size": 4},
        "optimiser": {"learning_rate": 3e-3},
        "checkpoint": {"every": 2},
        "track": {"console": "none", "rollouts_every": 1},
    }


@pytest.fixture(scope="module")
def alone(table: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    return untouched(table, tmp_path_factory.mktemp("untouched"))


@pytest.mark.parametrize("number", [3, 8])
def test_killed_while_answers_are_written(alone: tuple[Path, dict[str, Any]], tmp_path: Path, number: int) -> None:
    assert killed_and_resumed(alone[0], tmp_path, AnswerFile, "add", number) == alone[1]
    assert list((tmp_path / "cache" / "task_model_answers").glob("*.sqlite"))


def test_another_run_left_answers_for_some_of_the_questions(
    alone: tuple[Path, dict[str, Any]], table: dict[str, Any], tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**table, "seed": 5}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GROUPWISE_CACHE", str(tmp_path / "cache"))
        assert in_a_process(start, tmp_path / "first", other) == 0
        assert in_a_process(start, tmp_path / "run", alone[0]) == 0
    assert everything(tmp_path / "run") == alone[1]
