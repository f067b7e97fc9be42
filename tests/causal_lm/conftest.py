"""Tiny models of several families with random weights, large enough that their distributions are far from flat."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.causal_lm.sizes import GROUPED, IDS
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    PhiConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)


def build(family: str, dtype: torch.dtype = torch.float32, seed: int = 0, **changes):
    """A model in eval mode whose output bias and weights make some tokens likely."""
    key = f"{family} {dtype} {seed} {changes}"
    if key not in _BUILT:
        _BUILT[key] = _build(family, dtype, seed, changes)
    torch.manual_seed(seed)  # what a test draws next is the same, whoever built the model first
    return copy.deepcopy(_BUILT[key])


_BUILT = {}


def _build(family, dtype, seed, changes):
    configs = {
        "gpt2": lambda: GPT2Config(vocab_size=31, n_embd=16, n_layer=2, n_head=4, n_positions=64, **IDS, **changes),
        "qwen3": lambda: Qwen3Config(**GROUPED, head_dim=4, tie_word_embeddings=True, **IDS, **changes),
        "llama": lambda: LlamaConfig(**GROUPED, **IDS, **changes),
        "gemma2": lambda: Gemma2Config(
            **GROUPED,
            head_dim=4,
            sliding_window=5,
            final_logit_softcapping=2.0,
            **IDS,
            **changes,
        ),
        "cohere": lambda: CohereConfig(**GROUPED, **IDS, **changes),
        "phi": lambda: PhiConfig(**GROUPED, **IDS, **changes),
        "moe": lambda: Qwen3MoeConfig(
            **GROUPED, head_dim=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, **IDS, **changes
        ),
        "granite": lambda: GraniteConfig(**GROUPED, logits_scaling=0.25, **IDS, **changes),
    }
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(configs[family](), dtype=dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8 if family in ("qwen3", "moe") else 12)
            elif family == "phi":  # its head has a bias, which starts at zero
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture
def model_of():
    return build
