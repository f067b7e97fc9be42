"""What TRL's trainer does around the loss, beside TRL's own trainer in one process: tools, environments, resume, a
reference that follows, the size of the entropy bonus, and optimiser steps that reach over two generations.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from benchmarks.peers_hub import make_model, make_tokenizer
from datasets import Dataset
from tests.integrations.trl import tiny
from tests.integrations.trl.test_trainer import Gradients, losses, run, same
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise_trainers.trl import GRPOTrainer

pytestmark = pytest.mark.slow

KINDS = (GRPOTrainer, trl.GRPOTrainer)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("beside")


@pytest.fixture(scope="module")
def chat(folder: Path) -> Path:
    """A model of Qwen3's kind whose template and tokens know tools; a byte is a token."""
    make_model(folder / "chat", "Qwen3ForCausalLM", make_tokenizer(300))
    return folder / "chat"


def call(name: str, **arguments: Any) -> str:
    text = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{text}\n</tool_call><|im_end|>"


def scripted(tokenizer: Any, answers: Sequence[str]) -> Callable[..., Tensor]:
    """Stands for sampling: the answers to a whole batch, then `Done!` to those that called a tool."""

    def generate(input_ids: Tensor, **settings: Any) -> Tensor:
        texts = answers if len(input_ids) == len(answers) else ["Done!<|im_end|>"] * len(input_ids)
        tokens = tokenizer(list(texts), padding=True, padding_side="right", return_tensors="pt")["input_ids"]
        return torch.cat([input_ids, tokens], dim=1)

    return generate


def talk(
    kind: type, folder: Path, chat: Path, answers: Sequence[str], rewards: Any, **parts: Any
) -> tuple[Any, list[Tensor]]:
    """A trainer after two passes over one generation of scripted answers, and the gradients of its steps."""
    gradients = Gradients()
    keys = {"max_steps": 2, "num_iterations": 2, "optim": "sgd", "learning_rate": 0.2, "scale_rewards": "none"}
    batch = {"gradient_accumulation_steps": 1, "max_completion_length": 400, "shuffle_dataset": False}
    tokenizer = AutoTokenizer.from_pretrained(chat)
    trainer = kind(
        AutoModelForCausalLM.from_pretrained(chat),
        rewards,
        tiny.settings(folder / "out", **keys | batch | parts.pop("keys", {})),
        processing_class=tokenizer,
        callbacks=[gradients],
        **parts,
    )
    trainer.model.generate = scripted(tokenizer, answers)
    trainer.train()
    return trainer, gradients.steps


def written(completions: Any, **columns: Any) -> list[float]:
    """The number of letters in the model's and the tools' messages."""
    return [sum(len(message.get("content") or "") for message in messages) / 10 for messages in completions]


def logged(trainer: Any, *names: str) -> list[float]:
    return [trainer.state.log_history[0][name] for name in names]


def test_tools_are_called_and_their_tokens_do_not_train(folder: Path, chat: Path) -> None:
    calls: list[tuple[int, int]] = []

    def multiply(left: int, right: int) -> int:
        """Multiplies two numbers.

        Args:
            left: the first.
            right: the second.

        Returns:
            their product.
        """
        calls.append((left, right))
        return left * right

    async def negate(number: int) -> int:
        """Turns the sign of a number.

        Args:
            number: of any sign.

        Returns:
            the number with the other sign.
        """
        return -number

    answers = [
        call("multiply", left=3, right=4),
        call("multiply", left=3, down=4),
        call("negate", number=7),
        "No.<|im_end|>",
    ]
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": f"{place} x 4?"}]} for place in range(8)])
    ours, theirs = (
        talk(kind, folder, chat, answers, written, tools=[multiply, negate], train_dataset=data) for kind in KINDS
    )
    same(ours, theirs)
    assert calls == [(3, 4)] * 2
    assert logged(ours[0], "tools/call_frequency", "tools/failure_frequency") == pytest.approx([3 / 4, 1 / 3])
    mask = ours[0]._sampled["train"].batch.acted.mask
    trained = mask.sum(1)
    # The call that the model wrote and `Done!` train; what the tool answered lies between them and does not.
    assert trained[0] == len(answers[0].encode()) - len("<tool_call></tool_call><|im_end|>") + 3 + 6
    assert mask.shape[1] > int(trained.max())


def test_environments_own_rewards_tools_and_prompts(folder: Path, chat: Path) -> None:
    class Counter:
        """An environment with one tool, whose state is its reward."""

        def reset(self, **columns: Any) -> str:
            self.count = 0
            return "Count to three."

        def add(self, step: int) -> int:
            """Adds to the counter.

            Args:
                step: the number to add.

            Returns:
                the counter.
            """
            self.count += step
            return self.count

        def get_reward(self) -> float:
            return float(self.count == 3)

    counts: list[list[int]] = []

    def close(completions: Any, environments: Any, trainer_state: Any, log_metric: Any, **columns: Any) -> list[float]:
        counts.append([environment.count for environment in environments])
        log_metric("asked_at", trainer_state.global_step)
        return [-abs(environment.count - 3) / 10 for environment in environments]

    answers = [call("add", step=3), call("add", step=1), call("subtract", step=1), "Three.<|im_end|>"]
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": "Go. "}]}] * 8)
    ours, theirs = (
        talk(kind, folder, chat, answers, [close], environment_factory=Counter, train_dataset=data) for kind in KINDS
    )
    same(ours, theirs)
    assert counts == [[3, 1, 0, 0]] * 2
    names = ("rewards/Counter/mean", "rewards/close/mean", "reward", "tools/failure_frequency", "asked_at")
    assert logged(ours[0], *names) == pytest.approx(logged(theirs[0], *names))
    assert logged(ours[0], *names) == pytest.approx([0.25, -0.2, 0.05, 1 / 3, 0.0])


def test_a_resumed_run_goes_on_as_trls_does(folder: Path, tmp_path: Path) -> None:
    keys = {
        "max_steps": 4,
        "save_strategy": "steps",
        "save_steps": 2,
        "scale_rewards": "none",
        "beta": 0.1,
        "use_bias_correction_kl": False,
        "optim": "adamw_torch",
        "learning_rate": 0.02,
        "lr_scheduler_type": "linear",
    }

    def resumed(kind: type, place: Path) -> tuple[Any, list[Tensor]]:
        run(kind, place, keys)
        gradients = Gradients()
        trainer = kind(
            tiny.model(place / "model"),
            tiny.early_letters,
            tiny.settings(place / "again", **keys),
            train_dataset=tiny.data(),
            processing_class=tiny.tokenizer(),
            callbacks=[gradients],
        )
        trainer.train(resume_from_checkpoint=str(place / "out" / "checkpoint-2"))
        return trainer, gradients.steps

    ours, theirs = (resumed(kind, tmp_path / kind.__module__.split(".")[0]) for kind in KINDS)
    assert len(ours[1]) == 2
    same(ours, theirs)
    assert len(losses(ours[0])) == 4
    assert ours[0].objective_state.step == 4


def test_a_reference_that_follows_is_trls(folder: Path) -> None:
    keys = {
        "beta": 0.5,
        "use_bias_correction_kl": False,
        "sync_ref_model": True,
        "ref_model_sync_steps": 1,
        "ref_model_mixup_alpha": 0.5,
        "scale_rewards": "none",
        "max_steps": 3,
    }
    ours, theirs = (run(kind, folder, keys) for kind in KINDS)
    same(ours, theirs)
    references = [dict(trainer.ref_model.named_parameters()) for trainer, _ in (ours, theirs)]
    for name, parameter in references[0].items():
        torch.testing.assert_close(parameter, references[1][name], rtol=1e-4, atol=1e-6)
    still = run(GRPOTrainer, folder, keys | {"sync_ref_model": False})
    assert float((ours[1][2] - still[1][2]).norm()) > 1e-3 * float(still[1][2].norm())


@pytest.mark.parametrize("kind", ["dapo", "luspo", "grpo", "dr_grpo", "cispo", "sapo", "vespo", "bnpo"])
def test_an_entropy_bonus_is_the_mean_over_tokens_for_every_loss_type(folder: Path, kind: str) -> None:
    """Whole steps in one micro-batch, where TRL's mean over tokens is that of the step."""
    keys = {
        "loss_type": kind,
        "entropy_coef": 0.5,
        "scale_rewards": "none",
        "num_iterations": 2,
        "max_steps": 2,
        "gradient_accumulation_steps": 1,
        "per_device_train_batch_size": 8,
    }
    ours, theirs = (run(trainer_kind, folder, keys) for trainer_kind in KINDS)
    same(ours, theirs)
    for line in ours[0].state.log_history[:2]:
        assert (line["policy_loss"] - line["loss"]) / line["entropy"] == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "luspo", "cispo"])
def test_an_optimiser_step_may_reach_over_two_generations(folder: Path, kind: str) -> None:
    keys = {
        "loss_type": kind,
        "scale_rewards": "none",
        "beta": 0.1,
        "use_bias_correction_kl": False,
        "gradient_accumulation_steps": 3,
        "steps_per_generation": 2,
        "num_iterations": 2,
        "max_steps": 4,
        "learning_rate": 0.02,
    }
    ours, theirs = (run(trainer_kind, folder, keys) for trainer_kind in KINDS)
    if kind == "cispo":
        # TRL divides by the tokens of each generation, ours by those of each part: equal sizes only on average.
        assert all(step.isfinite().all() and step.norm() > 0 for step in ours[1])
    else:
        same(ours, theirs)
    assert ours[0].objective_state.step == ours[0].state.global_step == 4
