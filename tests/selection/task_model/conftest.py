"""Tiny language and image-text models with random weights, saved as folders and loaded as any other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    Qwen3Config,
)

from groupwise.causal_lm.config import CausalLMConfig, SmallModelConfig
from groupwise.causal_lm.loading import load
from groupwise.causal_lm.small import character_tokenizer, small_model
from groupwise_selection.example import Example, Query

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789QA:?+ \n"
WORDS = ("red", "blue", "green")
CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for part"
    " in m['content'] %}{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}{% endif %}<|end|>{%"
    " endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")


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
    """A LLaVA of random weights: 8 by 8 pictures in patches of 4, so four tokens a picture."""
    folder = tmp_path_factory.mktemp("llava")
    tokenizer = character_tokenizer(LETTERS, words=[f" {word}" for word in WORDS], special=["<image>", *ROLES])
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = Qwen3Config(
        vocab_size=len(tokenizer),
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=160,
        eos_token_id=1,
        pad_token_id=0,
        **sizes,
    )
    vision = CLIPVisionConfig(image_size=8, patch_size=4, **sizes)
    torch.manual_seed(0)
    config = LlavaConfig(
        text_config=text, vision_config=vision, image_token_id=tokenizer.convert_tokens_to_ids("<image>")
    )
    model = LlavaForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8)
    model.save_pretrained(folder)
    images = CLIPImageProcessorPil(size={"shortest_edge": 8}, crop_size={"height": 8, "width": 8})
    tokens = {"patch_size": 4, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    LlavaProcessor(images, tokenizer, chat_template=CHAT, **tokens).save_pretrained(folder)
    return folder
