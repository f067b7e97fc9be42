from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.trl import tiny
from trl import GRPOConfig
from trl import GRPOTrainer as TRLTrainer

from groupwise.integrations.trl.keys import DECIDED, refusals, remarks
from groupwise.integrations.trl.version import missing, remark
from groupwise.objective import Objective


def said(tmp_path: Path, name: str, edits: dict[str, Any], keys: dict[str, Any], own_sampler: bool = False) -> str:
    return "; ".join(refusals(Objective.preset(name, **edits), tiny.settings(tmp_path, **keys), own_sampler))


@pytest.mark.parametrize(
    ("name", "edits", "keys", "expected"),
    [
        ("dapo", {}, {}, "admission.kind = 'resample' draws further prompts until the batch is full"),
        ("grpo+tis", {}, {}, "correction.kind = 'truncate' needs the log-probs of another sampler"),
        ("dppo_tv", {}, {"top_p": 0.9, "top_k": 5}, "with top_p = 0.9, top_k = 5 TRL does not say what that was"),
        ("grpo", {"divergence.kind": "exact"}, {}, "reads Scored.exact_divergence"),
        ("grpo_guard", {}, {}, "reads Scored.mean_shift"),
        ("grpo", {"credit.inverse_step": {}}, {}, "step_size"),
        ("grpo", {"auxiliary": {"supervised": 0.1}}, {}, "auxiliary.supervised needs data"),
        ("grpo", {"advantage.kind": "per_prompt"}, {}, "remembers a prompt's earlier rewards"),
        ("grpo", {}, {"gradient_accumulation_steps": 4, "steps_per_generation": 2}, ""),
        (
            "bnpo",
            {"aggregation.kind": "prompt_mean"},
            {"per_device_train_batch_size": 3, "num_generations": 6, "steps_per_generation": 4},
            "",
        ),
        (
            "bnpo",
            {"aggregation.kind": "prompt_mean"},
            {
                "per_device_train_batch_size": 3,
                "num_generations": 4,
                "gradient_accumulation_steps": 4,
                "generation_batch_size": 12,
            },
            "",
        ),
    ],
    ids=str,
)
def test_what_trl_cannot_give_is_refused_with_a_reason(
    tmp_path: Path, name: str, edits: dict[str, Any], keys: dict[str, Any], expected: str
) -> None:
    found = said(tmp_path, name, edits, keys)
    assert expected in found
    assert bool(found) == bool(expected)
    assert not expected or "write" in found or "leave" in found


def test_groups_across_processes_have_no_mean_over_prompts(tmp_path: Path) -> None:
    args = tiny.settings(tmp_path, num_generations=8)
    args.steps_per_generation = 1  # as with two processes, each of which holds four of the eight members
    args.gradient_accumulation_steps = 1
    assert "cut inside a group of 8" in "; ".join(
        refusals(Objective.preset("bnpo", **{"aggregation.kind": "prompt_mean"}), args, False)
    )
    assert not list(refusals(Objective.preset("bnpo"), args, False))


def test_a_sampler_that_records_can_be_corrected(tmp_path: Path) -> None:
    assert not said(tmp_path, "grpo+tis", {}, {}, own_sampler=True)
    assert not said(tmp_path, "dppo_tv", {}, {})


def test_which_key_wins_is_said(tmp_path: Path) -> None:
    args = tiny.settings(tmp_path)
    assert "write 'aggregation.length': 6 for TRL's" in "; ".join(remarks(Objective.preset("dr_grpo"), args))
    assert not list(remarks(Objective.preset("dr_grpo", **{"aggregation.length": 6}), args))
    args.sync_ref_model = True
    assert "sync_ref_model has no effect" in "; ".join(remarks(Objective.preset("gspo"), args))
    args.sync_ref_model, args.use_vllm = False, True
    assert "is not corrected" in "; ".join(remarks(Objective.preset("gspo"), args))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (None, "TRL 1.16 or a later 1.x, which is not installed"),
        ("1.15.2", "and 1.15.2 is installed"),
        ("2.0.0", "and 2.0.0 is installed"),
    ],
)
def test_trl_that_is_absent_or_another_is_named_with_what_to_write(
    tmp_path: Path, version: str | None, expected: str
) -> None:
    (tmp_path / "trl.py").write_text("raise ImportError('absent')" if version is None else f"__version__ = '{version}'")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport groupwise.integrations.trl"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert expected in process.stderr
    assert "pip install 'trl>=1.16,<2'" in process.stderr


def test_a_newer_trl_is_checked_by_what_is_used_and_told(tmp_path: Path) -> None:
    """A trainer of a later version: one method renamed, one parameter gone, a key that the objective decides gone."""
    keys = {field.name for field in fields(GRPOConfig)}
    assert not list(missing(TRLTrainer, keys, set(DECIDED)))

    class Later(TRLTrainer):
        _compute_loss = None

        def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any) -> Any: ...

    assert list(missing(Later, keys - {"epsilon"}, set(DECIDED))) == [
        "GRPOConfig.epsilon",
        "GRPOTrainer._calculate_rewards(completion_ids_list=...)",
        "GRPOTrainer._compute_loss",
    ]

    assert remark("1.16.3") is None
    assert "1.19.0 is newer than 1.16" in str(remark("1.19.0"))
