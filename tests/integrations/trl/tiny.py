"""A tiny model, tokenizer, data and rewards for TRL's trainer, made in the test."""

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig

LETTERS = "abcdefghijklmnop"


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a letter, a pad and an end."""
    words = {"<pad>": 0, "<eos>": 1, **{letter: place + 2 for place, letter in enumerate(LETTERS)}}
    letters = Tokenizer(WordLevel(words, unk_token="<pad>"))
    letters.pre_tokenizer = Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=letters, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>", padding_side="left"
    )


def model(folder: Path, seed: int = 0) -> Qwen3ForCausalLM:
    """A model of a few thousand weights, from a folder, so that TRL can load its reference from there."""
    torch.manual_seed(seed)
    settings = Qwen3Config(
        vocab_size=18,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=64,
        initializer_range=0.4,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    if not (folder / "config.json").exists():
        Qwen3ForCausalLM(settings).save_pretrained(folder)
    return Qwen3ForCausalLM.from_pretrained(folder)


def data(size: int = 16) -> Dataset:
    """Prompts of two or three letters."""
    return Dataset.from_dict(
        {
            "prompt": [
                LETTERS[place % 16] + LETTERS[(3 * place + 1) % 16] + ("a" if place % 2 else "")
                for place in range(size)
            ]
        }
    )


def early_letters(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    """How many letters of the answer come from the first half of the alphabet."""
    return [float(sum(letter in LETTERS[:8] for letter in answer)) for answer in completions]


def length(prompts: list[str], completions: list[str], **columns: Any) -> list[float | None]:
    """The answer's length in quarters; nothing for an answer that begins with `a`."""
    return [None if answer.startswith("a") else len(answer) / 4 for answer in completions]


def settings(folder: Path, **keys: Any) -> GRPOConfig:
    """Arguments of a small run on the CPU in fp32."""
    given: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 6,
        "max_steps": 2,
        "learning_rate": 0.02,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "max_grad_norm": 0.0,
        "seed": 3,
    }
    return GRPOConfig(**given | keys)
