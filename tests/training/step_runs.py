"""Small runs with everything in them at once, and what a replay of each has to know: `tests.oracles.step` goes through
them again.

A conversation of two turns (so that masks have holes), temperature, top-p, a frozen reference, gradient clipping,
weight decay, a rate that rises, micro-batches of uneven size, a supervised term, dropout named by the model's folder
and left off.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tests.oracles.step import Settings
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM

from groupwise.causal_lm.small import character_tokenizer
from groupwise.domain.language.environment import Step
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run

NUM_STEPS, NUM_GROUPS, GROUP_SIZE = 2, 3, 4
SEED = 16
"""One under which some groups are flat, some rewards are missing, and the trust region acts."""
RANK, ALPHA = 2, 3.0
ENTROPY = {"dr_grpo", "gspo", "rloo", "ema", "sapo"}
"""Methods whose runs have an entropy bonus."""
PROMPTS = ("ab?", "ba?", "cabba?", "dd?", "e?", "abcde?")
SHOWN = ("abab", "b", "ccc", "da", "eeeee", "abc")


@dataclass(frozen=True)
class Case:
    """One run: `minibatches` above 1 are dealt twice over."""

    method: str
    lora: bool = False
    processes: int = 1
    minibatches: int = 1
    family: str = "gpt2"
    sharding: str = "none"

    @property
    def name(self) -> str:
        """For people and folders."""
        how = "lora" if self.lora else "all"
        shards = "-shards" if self.sharding == "full" else ""
        return f"{self.family}-{self.method}-{how}-{self.processes}p-{self.minibatches}m{shards}"


def asks(completions: list[Any], **columns: Any) -> list[float | None]:
    """Half a point for every letter from a to c in the first turn, at most one point and a half; none that counts where
    the turn begins with a letter from d to g.
    """
    points = []
    for turns in completions:
        first = turns[0]["content"]
        missing = first.startswith(tuple("defg"))
        points.append(None if missing else min(sum(letter in "abc" for letter in first), 3) / 2)
    return points


def asks_finely(completions: list[Any], **columns: Any) -> list[float]:
    """A number that only equal first turns share, so that no group is flat and no two decisions tie."""
    return [sum(ord(letter) / 2**place for place, letter in enumerate(turns[0]["content"], 7)) for turns in completions]


class Partner:
    """Answers the first turn, and pays a point for a vowel in the second, which ends it."""

    def __init__(self) -> None:
        self.turns = 0

    def reset(self, columns: dict[str, Any]) -> str:
        return ""

    def step(self, text: str) -> Step:
        self.turns += 1
        return Step("no?") if self.turns == 1 else Step(reward=float("a" in text or "e" in text), done=True)


def settings(case: Case) -> Settings:
    """The numbers of a case."""
    return Settings(
        method=case.method,
        seed=SEED,
        num_steps=NUM_STEPS,
        minibatches=case.minibatches,
        updates_per_batch=2 if case.minibatches > 1 else 1,
        learning_rate=0.3 if case.family == "qwen3" else 0.03,
        warm_up_steps=2,
        beta1=0.8,
        beta2=0.95,
        # Adam divides a tiny gradient by its own size, rounding and all: where a norm rounds to fp32, a large eps keeps
        # what that does small.
        eps=0.1 if case.family == "qwen3" else 1e-6,
        weight_decay=0.1,
        max_grad_norm=0.05,
        reward_weights={"asks": 1.0, "environment": 0.5},
        entropy=0.02 if case.method in ENTROPY else 0.0,
        supervised=0.3,
        demonstrations_per_step=4,
        lora_scale=ALPHA / RANK if case.lora else None,
    )


def table(case: Case, model: Path, corpus: Path) -> dict[str, Any]:
    """The experiment, with the numbers of `settings`."""
    numbers = settings(case)
    objective: dict[str, Any] = {"auxiliary": {"supervised": numbers.supervised}, "entropy": numbers.entropy}
    if case.method not in ("rloo", "reinforce_pp"):
        objective["divergence"] = {"kind": "k3", "beta": 0.04}
    if case.method == "kl_cov":
        objective["trust"] = {"share": 0.1}
    reward = "asks_finely" if case.method == "kl_cov" else "asks"
    lora = {"r": RANK, "alpha": ALPHA, "target_modules": "all-linear"} if case.lora else None
    return {
        "method": case.method,
        "seed": numbers.seed,
        **objective,
        "domain": {
            "kind": "language",
            "model": {"kind": "pretrained", "path": str(model), "dtype": "float64", "lora": lora},
            "data": {
                "source": {
                    "kind": "files",
                    "paths": [str(corpus)],
                    "held_out_paths": [str(corpus.with_name("held_out.jsonl"))],
                    "shuffle": False,
                }
            },
            "rewards": {"asks": {"kind": "callable", "path": f"tests.training.step_runs:{reward}"}},
            "environment": {"kind": "callable", "path": "tests.training.step_runs:Partner", "weight": 0.5},
            "demonstrations": {"column": "shown"},
            "sampling": {"max_new_tokens": 10, "max_turn_tokens": 4, "temperature": 0.8, "top_p": 0.85},
            "evaluation": {"greedy": False},
        },
        "train": {
            "num_steps": numbers.num_steps,
            "prompts_per_step": NUM_GROUPS,
            "group_size": GROUP_SIZE,
            "minibatches": numbers.minibatches,
            "updates_per_batch": numbers.updates_per_batch,
            "micro_batch_members": 5,
            "max_grad_norm": numbers.max_grad_norm,
            "demonstrations_per_step": numbers.demonstrations_per_step,
            "sharding": case.sharding,
        },
        "optimiser": {
            name: getattr(numbers, name)
            for name in ("learning_rate", "warm_up_steps", "beta1", "beta2", "eps", "weight_decay")
        },
        "checkpoint": {"every": NUM_STEPS, "keep_best": False},
        "track": {"console": "none", "rollouts_every": 1},
    }


def write_inputs(folder: Path) -> None:
    """The corpus, and a model folder for each family, in fp64."""
    rows = [{"prompt": prompt, "shown": answer} for prompt, answer in zip(PROMPTS, SHOWN, strict=True)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "held_out.jsonl").write_text(json.dumps({"prompt": "bc?", "shown": "a"}) + "\n", encoding="utf-8")
    tokenizer = character_tokenizer("abcdefghijklmno?n")
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    shared: dict[str, Any] = {"vocab_size": len(tokenizer), "initializer_range": 0.3, **ends}
    gpt2 = GPT2Config(n_positions=32, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0.1, **shared)
    qwen = Qwen3Config(
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        **shared,
    )
    qwen.max_position_embeddings = 32
    for name, kind, config in (("gpt2", GPT2LMHeadModel, gpt2), ("qwen3", Qwen3ForCausalLM, qwen)):
        torch.manual_seed(0)
        kind(config).double().save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


def write_experiment(case: Case, folder: Path) -> Path:
    """The experiment's file."""
    path = folder / f"{case.name}.json"
    path.write_text(json.dumps(table(case, folder / case.family, folder / "corpus.jsonl")), encoding="utf-8")
    return path


def train(case: Case, folder: Path) -> Path:
    """Runs a case whose experiment is written, in this process; gives its run folder."""
    out = folder / case.name
    run(load_experiment(folder / f"{case.name}.json", run_code=True), out)
    return out
