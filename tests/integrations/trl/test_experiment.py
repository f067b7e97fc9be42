"""`from_trl`: every field of `GRPOConfig`, the lengths that TRL itself computes, and what is refused."""

import json
import math
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from tests.integrations.sums import model, rows
from tests.integrations.trl import tiny
from transformers import get_scheduler
from trl import GRPOConfig, GRPOTrainer

import groupwise
from groupwise.config import ConfigError
from groupwise.training.optimiser_config import OptimiserConfig
from groupwise_trainers.trl import objective_of
from groupwise_trainers.trl.keys import DECIDED, MAPPED, REFUSED, ignored_fields

pytestmark = pytest.mark.slow


def short(completions: Any, **columns: Any) -> list[float]:
    return [-float(len(completion[0]["content"])) for completion in completions]


def even(completions: Any, **columns: Any) -> list[float]:
    return [float(len(completion[0]["content"]) % 2) for completion in completions]


def test_the_defaults_of_trl_are_kept(tmp_path: Path) -> None:
    args = GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, max_steps=10)
    translated = groupwise.from_trl(args)
    objective = translated["objective"]
    assert objective == objective_of(args)
    assert (objective.aggregation.kind, objective.advantage.kind) == ("token_mean", "z_score")
    assert (objective.divergence.kind, objective.trust.low, objective.trust.high) == ("none", 0.2, 0.2)
    expected = {
        "train.group_size": 8,
        "train.prompts_per_step": 1,
        "train.num_steps": 10,
        "train.updates_per_batch": 1,
        "train.minibatches": 1,
        "train.max_grad_norm": 1.0,
        "train.gradient_checkpointing": True,
        "domain.sampling.max_new_tokens": 512,
        "domain.sampling.temperature": 1.0,
        "domain.model.dropout": "kept",
        "optimiser.learning_rate": {"kind": "linear", "start": 1e-6, "end": 0.0, "num_steps": 10},
        "optimiser.weight_decay": 0.0,
        "train.evaluate_every": 0,
        "checkpoint.every": 500,
        "seed": 42,
    }
    assert {key: translated[key] for key in expected} == expected
    assert not ignored_fields(args)
    assert "without eval_dataset a tenth of the rows" in str(translated)
    assert "max_steps, num_train_epochs -> train.num_steps = 10" in str(translated)


def test_every_field_has_one_place() -> None:
    names = {field.name for field in fields(GRPOConfig)}
    assert not MAPPED & set(REFUSED) | MAPPED & set(DECIDED)
    assert names >= MAPPED | set(REFUSED) | set(DECIDED)
    # What is in none of them is said to be ignored, where somebody wrote it.
    args = tiny.settings(Path("unused"), dataloader_num_workers=2, log_completions=True, max_steps=1)
    ignored = ignored_fields(args)
    assert ignored["dataloader_num_workers"] == "No data loader: prompts are drawn by number."
    assert set(ignored) == {"dataloader_num_workers", "log_completions", "logging_steps"}


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({"num_train_epochs": 1.0, "max_steps": -1}, marks=pytest.mark.slow),
        {"num_train_epochs": 2.5, "max_steps": -1, "num_iterations": 2},
        pytest.param(
            {"num_train_epochs": 1.0, "max_steps": -1, "steps_per_generation": 4, "gradient_accumulation_steps": 1},
            marks=pytest.mark.slow,
        ),
        pytest.param({"max_steps": 7, "num_iterations": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_run_is_as_long_as_trl_makes_it(tmp_path: Path, keys: dict[str, Any]) -> None:
    tiny.model(tmp_path / "model")
    args = tiny.settings(tmp_path, **keys)
    data = tiny.data(11)
    translated = groupwise.from_trl(args, train_dataset=data, reward_funcs=tiny.length)
    trainer = GRPOTrainer(str(tmp_path / "model"), tiny.early_letters, args, data, processing_class=tiny.tokenizer())
    generations: list[int] = []
    inner = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda inputs: (generations.append(len(inputs)), inner(inputs))[1]  # type: ignore[method-assign]
    trainer.train()
    updates = translated["train.minibatches"] * translated["train.updates_per_batch"]
    assert translated["train.num_steps"] == math.ceil(trainer.state.max_steps / updates) == len(generations)
    members = translated["train.prompts_per_step"] * translated["train.group_size"]
    assert set(generations) == {members}
    assert translated["data"] is data
    assert translated["rewards"] is tiny.length


def test_a_stream_is_read_as_far_as_the_steps_take(tmp_path: Path) -> None:
    args = tiny.settings(tmp_path, max_steps=2, mask_truncated_completions=True)
    stream = Dataset.from_list(rows()).to_iterable_dataset()
    translated = groupwise.from_trl(args, reward_funcs=short, train_dataset=stream)
    assert (translated["domain.data.num_train"], translated["domain.data.num_held_out"]) == (4, 1)
    assert "of a stream as many rows" in str(translated)
    assert translated["objective"].mask_truncated


def test_it_trains_with_the_weights_of_the_rewards(tmp_path: Path) -> None:
    args = GRPOConfig(
        output_dir="unused",
        use_cpu=True,
        bf16=False,
        max_steps=2,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=4,
        reward_weights=[0.25, 2.0],
        beta=0.02,
        sync_ref_model=True,
        ref_model_sync_steps=1,
        warmup_steps=0.5,
        eval_strategy="steps",
        eval_steps=1,
        report_to="none",
    )
    translated = groupwise.from_trl(
        args, reward_funcs=[short, even], train_dataset=rows(), eval_dataset={"a": rows(2), "b": rows(3)}
    )
    run = groupwise.train(model(), **translated, out=tmp_path / "run")
    assert run.summary["steps"] == 2
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    weights = {name: reward["weight"] for name, reward in config["domain"]["rewards"].items()}
    assert weights == {"short": 0.25, "even": 2.0}
    assert config["reference"] == {"kind": "periodic", "sync_steps": 1, "alpha": 0.6}
    # Half of two steps rises: 0 and the peak, as in TRL.
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rates = [row["learning_rate"] for row in map(json.loads, lines) if "learning_rate" in row]
    assert rates == pytest.approx([0.0, args.learning_rate])
    assert (config["train"]["prompts_per_step"], config["train"]["group_size"]) == (2, 4)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert sum("eval/b/greedy/even" in line for line in lines) == 3
    assert not hasattr(short, "weight")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"repetition_penalty": 1.1, "min_p": 0.1}, "min_p = 0.1 .*; repetition_penalty = 1.1"),
        (
            {"lr_scheduler_type": "polynomial"},
            "lr_scheduler_type = 'polynomial' has no counterpart: write one of linear",
        ),
        ({"optim": "sgd"}, "optim = 'sgd' has no counterpart: write one of adamw_torch"),
        ({"delta": 1.1, "min_p": 0.1}, "min_p = 0.1 .*; delta = 1.1 stands below 1 \\+ epsilon_high"),
        ({"data_seed": 4}, "data_seed = 4 beside seed = 3"),
        ({"max_steps": -1}, r"num_train_epochs = 3.0 is counted in rows, .*from_trl\(args, train_dataset=DATASET\)"),
        ({"reward_weights": [0.5]}, r"reward_weights = \[0.5\] belong to reward functions, which were not given"),
        ({"steps_per_generation": 3}, "gradient_accumulation_steps = 2 does not divide steps_per_generation = 3"),
        (
            {"steps_per_generation": 4, "gradient_accumulation_steps": 1, "num_generations": 16},
            "= 4 optimiser steps cut a generation of 1 prompts inside its groups",
        ),
    ],
)
def test_what_has_no_counterpart_is_refused_with_what_to_write(
    tmp_path: Path, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        groupwise.from_trl(tiny.settings(tmp_path, **keys))
    assert "\n" not in str(error.value)


def test_a_field_of_a_later_trl_is_not_called_ignored(tmp_path: Path) -> None:
    @dataclass
    class Later(GRPOConfig):
        brightness: float = 0.5

    written = tiny.settings(tmp_path).to_dict()
    kept = {key: written[key] for key in ("output_dir", "use_cpu", "bf16", "max_steps", "num_generations")}
    groupwise.from_trl(Later(**kept))
    with pytest.raises(ConfigError, match=r"brightness = 0.7 is not known to from_trl.* leave it at its default 0.5"):
        groupwise.from_trl(Later(**kept, brightness=0.7))


def test_other_objects_and_too_few_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"from_trl: an object of type dict was given; give a trl.GRPOConfig"):
        groupwise.from_trl({})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="train_dataset has 1 rows and a generation takes 2 prompts"):
        groupwise.from_trl(tiny.settings(tmp_path), train_dataset=tiny.data(1))
    for weight in (0.5, 1.0):
        with pytest.raises(ConfigError, match="reward_weights has 1 numbers for 2 reward functions"):
            groupwise.from_trl(tiny.settings(tmp_path, reward_weights=[weight]), reward_funcs=[short, even])
    assert groupwise.from_trl(tiny.settings(tmp_path, reward_weights=[1.0, 1.0])), "weights of 1 ask for no function"


@pytest.mark.parametrize("kind", ["linear", "cosine", "constant", "constant_with_warmup"])
@pytest.mark.parametrize("warm_up", [0, 3, 0.25])
@pytest.mark.parametrize("updates", [1, 2])
def test_the_learning_rate_is_trls_at_every_step(tmp_path: Path, kind: str, warm_up: float, updates: int) -> None:
    keys = {"lr_scheduler_type": kind, "warmup_steps": warm_up, "learning_rate": 3e-4, "num_iterations": updates}
    args = tiny.settings(tmp_path, max_steps=13, **keys)
    translated = groupwise.from_trl(args)
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=args.learning_rate)
    scheduler = get_scheduler(kind, optimiser, args.get_warmup_steps(13), 13)
    theirs = []
    for _ in range(updates * translated["train.num_steps"]):
        theirs.append(scheduler.get_last_lr()[0])
        optimiser.step()
        scheduler.step()
    keys = ("learning_rate", "warm_up_steps")
    ours = OptimiserConfig.model_validate({key: translated[f"optimiser.{key}"] for key in keys})
    generations = [theirs[start : start + updates] for start in range(0, len(theirs), updates)]
    expected = [sum(rates) / updates for rates in generations]
    assert [ours.rate(step) for step in range(len(expected))] == pytest.approx(expected, abs=1e-18)
    assert ("at the mean of TRL's rates" in str(translated)) == (updates > 1)


def test_steps_without_a_gradient_and_the_best_model_are_told(tmp_path: Path) -> None:
    settings = {"save_steps": 1, "eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "reward"}
    args = tiny.settings(tmp_path, load_best_model_at_end=True, save_strategy="steps", **settings)
    differs = " ".join(groupwise.from_trl(args).differs)
    assert "whose gradient is 0 (all groups flat) is left out" in differs
    assert "train.metric, whatever metric_for_best_model says" in differs
    assert "metric_for_best_model" not in str(groupwise.from_trl(tiny.settings(tmp_path)))


def add(a: int, b: int) -> int:
    """Adds.

    Args:
        a: one number.
        b: another one.
    """
    return a + b


def test_the_other_arguments_of_the_trainer_are_translated(tmp_path: Path) -> None:
    args = tiny.settings(tmp_path, max_steps=1, max_tool_calling_iterations=2)
    adapter = LoraConfig(
        r=2, lora_alpha=6, lora_dropout=0.1, target_modules=["v_proj", "q_proj"], task_type="CAUSAL_LM"
    )
    translated = groupwise.from_trl(
        args, tools=[add], peft_config=adapter, processing_class=None, callbacks=[], optimizers=(None, None)
    )
    assert translated["tools"] == [add]
    assert translated["domain.environment.max_turns"] == 3
    assert translated["domain.model.lora"] == {
        "r": 2, "alpha": 6.0, "dropout": 0.1, "target_modules": ("q_proj", "v_proj")
    }  # fmt: skip
    assert "max_tool_calling_iterations -> domain.environment.max_turns = 3" in str(translated)
    unlimited = groupwise.from_trl(tiny.settings(tmp_path, max_steps=1), tools=[add])
    assert "at most 8 turns (domain.environment.max_turns); TRL's has no limit" in str(unlimited)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("processing_class", object(), "it belongs to the model: groupwise.train((model, processing_class), ...)"),
        ("reward_processing_classes", [object()], "groupwise.reward.RewardModel(path=FOLDER)"),
        ("callbacks", [object()], "write functions of (step, metrics) as callbacks of groupwise.train"),
        ("optimizers", (object(), None), "write optimiser.kind = 'callable'"),
        ("quantization_config", object(), "weights are trained as they are stored"),
        ("rollout_func", add, "write a conversation as domain.environment"),
        ("environment_factory", object, "domain.environment = {kind = 'callable', path = ...}"),
        ("reward_fns", [add], "reward_fns is no argument of GRPOTrainer; those that are read here are reward_funcs"),
        ("peft_config", {"r": 2}, "peft_config is of type dict; allowed: a peft.LoraConfig"),
        ("peft_config", LoraConfig(use_dora=True, target_modules=["q_proj"]), "peft_config.use_dora = True has no"),
        ("peft_config", LoraConfig(), 'target_modules = None; write the names of the layers, for example ["q_proj"'),
    ],
)
def test_an_argument_of_the_trainer_without_a_counterpart_is_refused(
    name: str, value: Any, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)) as caught:
        groupwise.from_trl(tiny.settings(tmp_path, max_steps=1), **{name: value})
    assert str(caught.value).startswith("from_trl: ")
    assert "\n" not in str(caught.value)
