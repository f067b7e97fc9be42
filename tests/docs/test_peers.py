"""`make peers`: what the comparison of two trainers says, and one run of it over a checkout made here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.peers_hub import FEW_TEXTS, QWEN_TEXTS, make_tokenizer

ROOT = Path(__file__).resolve().parents[2]


def test_the_tokenizer_has_qwens_ids_and_a_text_for_every_id() -> None:
    tokenizer = make_tokenizer(QWEN_TEXTS)
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id, len(tokenizer)) == (151_645, 151_643, 151_669)
    assert tokenizer.decode([40, 1513, 944, 1414, 894, 5392]) == "I don't know any tool"
    assert tokenizer("\n a1")["input_ids"] == [198, 220, 64, 16]
    few = make_tokenizer(FEW_TEXTS)
    assert len({few.decode([place]) for place in range(128, FEW_TEXTS)}) > FEW_TEXTS - 300


TESTS = """
import pytest
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def test_trains(tmp_path):
    rows = load_dataset("trl-internal-testing/zen", "standard_prompt_only", split="train")
    args = GRPOConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none",
        per_device_train_batch_size=2, num_generations=2, max_completion_length=4,
    )
    def length(completions, **columns):
        return [float(len(text)) for text in completions]
    trainer = GRPOTrainer("trl-internal-testing/tiny-Qwen2ForCausalLM-2.5", length, args, train_dataset=rows)
    trainer.train()
    assert trainer.state.global_step == 1


def test_only_theirs():
    assert GRPOTrainer.__module__.startswith("trl.")


def test_hub():
    load_dataset("somebody/something", split="train")


def test_model():
    GRPOTrainer("trl-internal-testing/tiny-UnheardForCausalLM", len)


@pytest.mark.skip(reason="test requires a GPU")
def test_gpu():
    pass
"""
SCRIPT = """
from datasets import Dataset


def main(test_size, push_to_hub, repo_id):
    rows = Dataset.from_dict({"prompt": ["One", "Two", "Three", "Four"]}).train_test_split(test_size=0.25)
    rows.push_to_hub(repo_id, config_name="standard_prompt_only")
"""


@pytest.mark.nightly
def test_both_trainers_run_over_a_checkout(tmp_path: Path) -> None:
    for path, text in {"tests/test_grpo_trainer.py": TESTS, "scripts/generate_zen_dataset.py": SCRIPT}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "benchmarks.peers", str(tmp_path), "--select", "test", "--keep", str(kept)]
    command += ["--steps", "1"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 1, result.stderr[-2000:]
    lines = result.stdout.splitlines()
    assert "5 tests, 2 decide something: TRL's trainer passes 2, ours 1" in lines
    assert any("test_only_theirs: AssertionError" in line or "test_only_theirs: assert" in line for line in lines)
    assert "undecided: 3" in lines
    assert "  1 test requires a GPU" in lines
    assert "  1 no small UnheardForCausalLM is made here" in lines
    # The same command goes on: with outcomes of all but one test it runs that one, and says the same of all.
    path = kept / "groupwise.jsonl"
    outcomes = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(outcomes[1:]), encoding="utf-8")
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "the tests with groupwise's trainer but 4 that are done" in again.stdout.splitlines()
    assert again.stdout.splitlines()[-8:] == lines[-8:]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 5
