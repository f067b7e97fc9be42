"""TRL's own rewards as they are, on both roads: in `groupwise.train` and in TRL's trainer with our objective."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from tests.integrations.sums import model, rows
from trl import GRPOConfig
from trl.rewards import (
    accuracy_reward,
    get_cosine_scaled_reward,
    get_repetition_penalty_reward,
    get_soft_overlong_punishment,
    reasoning_accuracy_reward,
    think_format_reward,
)

import groupwise
from groupwise_trainers.trl import GRPOTrainer

pytestmark = pytest.mark.slow


def shipped() -> list[Any]:
    return [
        think_format_reward,
        accuracy_reward,
        reasoning_accuracy_reward,
        get_soft_overlong_punishment(max_completion_len=6, soft_punish_cache=4),
        get_repetition_penalty_reward(ngram_size=1),
        get_cosine_scaled_reward(max_len=6),
        patient,
    ]


async def patient(
    prompts: Any,
    completions: Any,
    completion_ids: Any,
    trainer_state: Any,
    log_metric: Any,
    log_extra: Any,
    **rest: Any,
) -> list[float]:
    """Reads everything that TRL passes, and writes it down."""
    await asyncio.sleep(0)
    assert all(message["role"] == "assistant" for completion in completions for message in completion)
    assert all(prompt[0]["role"] == "user" for prompt in prompts)
    log_metric("answered", sum(bool(completion[0]["content"]) for completion in completions) / len(completions))
    log_extra("written", [completion[0]["content"] for completion in completions])
    return [len(ids) / 10 + trainer_state.global_step / 100 for ids in completion_ids]


NAMES = [
    "think_format_reward",
    "accuracy_reward",
    "reasoning_accuracy_reward",
    "soft_overlong_punishment_reward",
    "repetition_penalty_reward",
    "cosine_scaled_reward",
    "patient",
]


def test_in_our_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings: dict[str, Any] = {
        "train": {"num_steps": 2, "prompts_per_step": 2, "group_size": 4},
        "domain.sampling.max_new_tokens": 6,
        "track": {"rollouts_every": 1},
    }
    groupwise.train(model(), rewards=shipped(), data=Dataset.from_list(rows()), out=tmp_path / "run", **settings)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if "reward" in line]
    assert len(trained) == 2
    assert all(f"rewards/{name}/mean" in line for name in NAMES for line in trained)
    assert 0 <= trained[0]["logged/answered"] <= 1
    evaluated = [line for line in lines if "eval/greedy/reward" in line]
    assert len(evaluated) == 2
    assert all("eval/greedy/logged/answered" in line for line in evaluated)
    records = [
        json.loads(line)
        for line in sorted((tmp_path / "run" / "rollouts").glob("step-*.jsonl"))[-1].read_text().splitlines()
    ]
    assert len(records) == 8
    for record in records:
        # The state of the trainer counts the steps that are done: one, in the second step.
        assert record["rewards"]["patient"] == pytest.approx(len(record["token_ids"]) / 10 + 0.01)
        assert record["logged"]["written"] == record["text"]
        assert record["logged"]["gold_parsed"].startswith("[")
    assert "prompts are messages, so completions are too" in capsys.readouterr().out


def test_in_their_trainer_with_our_objective(tmp_path: Path) -> None:
    policy, tokenizer = model()
    policy.save_pretrained(tmp_path / "model")
    args = GRPOConfig(
        output_dir=str(tmp_path / "run"),
        use_cpu=True,
        bf16=False,
        report_to="none",
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=6,
        max_steps=2,
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        activation_checkpointing=False,
    )
    trainer = GRPOTrainer(
        str(tmp_path / "model"),
        shipped(),
        args,
        Dataset.from_list(rows()),
        processing_class=tokenizer,
        objective="gspo",
    )
    trainer.train()
    logged = [line for line in trainer.state.log_history if "reward" in line]
    assert len(logged) == 2
    assert all(f"rewards/{name}/mean" in line for name in NAMES for line in logged)
    assert all(0 <= line["answered"] <= 1 for line in logged)
