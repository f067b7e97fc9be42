"""Tiny language and image-text models with random weights, saved as folders and loaded as any other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.selection.tiny_llava import CHAT, LETTERS, ROLES, WORDS, build_llava

from groupwise.causal_lm.config import CausalLMConfig, SmallModelConfig
from groupwise.causal_lm.loading import load
from groupwise.causal_lm.small import character_tokenizer, small_model
from groupwise_selection.example import Example, Query


def example(number: int, question: str, answer: str, image=None) -> Example:
    return Example(f"e{number}", question, answer, np.ones(1, np.float32), image)


def query(name: str, question: str, image=None, answers=("red",)) -> Query:
    return Query(name, question, answers, np.ones(1, np.float32), (), image)


def picture(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (9, 7, 3), dtype=np.uint8)


@pytest.fixture(scope="package")
def causal_folder(tmp_path_factory):
    """A Qwen3-shaped model whose distributions are far from flat."""
    folder = tmp_path_factory.mktemp("causal")
    tokenizer = character_tokenizer(LETTERS, words=[f" {word}" for word in WORDS], special=ROLES)
    tokenizer.chat_template = CHAT
    model = small_model(
        SmallModelConfig(
            hidden_size=16, num_layers=2, num_heads=2, intermediate_size=24, max_positions=160, tied=False
        ),
        tokenizer,
        0,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="package")
def causal(causal_folder):
    """The model in fp64."""
    return load(CausalLMConfig(path=str(causal_folder), dtype="float64"))


@pytest.fixture(scope="package")
def llava_folder(tmp_path_factory):
    """A LLaVA of random weights."""
    return build_llava(tmp_path_factory.mktemp("llava"))
