"""Model folders as a user has them, small enough for a second of training, and an experiment on any of them."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GPT2Config, Qwen3Config

from groupwise import load_experiment
from groupwise.causal_lm.small import character_tokenizer
from groupwise.checkpoint import load_tree
from groupwise.config import merge
from groupwise.experiment import Experiment
from groupwise.reward.completions import completion_text
from groupwise.track import depends_on_machine, read_metrics

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 ?+-=.,:'()[]{}_\"\n"
CHAT = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt"
    " %}<|assistant|>{% endif %}"
)

EXPERIMENT = """\
method = "grpo"

[divergence]
kind = "none"

[domain]
kind = "language"

[domain.model]
kind = "pretrained"
path = "{model}"

[domain.data]
num_train = 16
num_held_out = 4
source = {{ kind = "sorting", min_length = 3, max_length = 3 }}

[domain.rewards.digits]
kind = "callable"
path = "tests.integration.small:digits"

[domain.sampling]
max_new_tokens = 6

[train]
num_steps = 2
prompts_per_step = 3
group_size = 4

[optimiser]
learning_rate = 1e-3

[checkpoint]
every = 1

[track]
console = "none"
"""


def digits(completions: list[Any], **columns: Any) -> list[float]:
    """The share of characters that are digits: a reward that even a random model earns in part."""
    texts = [completion_text(completion) for completion in completions]
    return [sum(each.isdigit() for each in text) / max(len(text), 1) for text in texts]


_CALLS: list[int] = []
"""The number of completions of each call of `fails_on_the_second` in this process."""


def fails_on_the_second(completions: list[Any], **columns: Any) -> list[float]:
    """A reward that one of two processes cannot compute after the first evaluation, which is its first call."""
    _CALLS.append(len(completions))
    if os.environ["RANK"] == "1" and len(_CALLS) > 1:
        raise KeyError("gone")
    return digits(completions)


def endless(completions: list[Any], **columns: Any) -> list[float]:
    """A reward that never returns."""
    threading.Event().wait()
    return []


def hold(step: int, metrics: Mapping[str, Any]) -> None:
    """A callback that keeps a run at its twelfth step while a file is there: no run ends before its signal."""
    while step == 12 and Path(os.environ["GROUPWISE_TEST_HOLD"]).exists():
        time.sleep(0.005)


def slow(completions: list[Any], **columns: Any) -> list[float]:
    """A reward that takes its time."""
    time.sleep(0.5)
    return [0.0] * len(completions)


def save_model(folder: Path, family: str, dtype: torch.dtype = torch.float32, positions: int = 64) -> Path:
    """A folder as `save_pretrained` leaves it: Qwen3-shaped (rotary, grouped heads, tied) or GPT-2 (learned positions),
    with random weights.
    """
    tokenizer = character_tokenizer(CHARACTERS, special=["<|user|>", "<|assistant|>", "<|system|>"])
    tokenizer.chat_template = CHAT
    ids: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
    }
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
    }
    config = (
        Qwen3Config(**sizes, **ids, max_position_embeddings=positions, tie_word_embeddings=True)
        if family == "qwen3"
        else GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=positions, **ids)
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                # Random weights as they come give a flat distribution, on which top-p, entropy and ratios show nothing.
                parameter.mul_(6)
    model.to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def experiment(model: Path, *overrides: str, **tables: Any) -> Experiment:
    """The experiment on a model folder, with changes; written beside the folder, as a user would."""
    path = model.parent / "small.toml"
    path.write_text(EXPERIMENT.format(model=model), encoding="utf-8")
    base = load_experiment(path, list(overrides))
    return base if not tables else load_experiment(path, merge(_nested(overrides), tables))


def _nested(overrides: tuple[str, ...]) -> dict[str, Any]:
    from groupwise.config import parse_overrides

    return parse_overrides(overrides)


def rows(run: Path) -> list[Mapping[str, Any]]:
    """Every row of `metrics.jsonl`, times and memory apart."""
    return [
        {name: value for name, value in row.items() if not depends_on_machine(name)}
        for row in read_metrics(run / "metrics.jsonl")
    ]


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    """The trained parameters, as a checkpoint holds them."""
    return {
        name: value
        for name, value in load_tree(run / "checkpoints" / f"step-{step}")["learner"]["weights"].items()
        if name.endswith(("weight", "bias"))
    }


def rollouts(run: Path, step: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "rollouts" / f"step-{step}.jsonl").read_text().splitlines()]
