"""Tiny models of several families with random weights, large enough that their distributions are far from flat."""

from __future__ import annotations

import pytest
import torch
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

SIZES = {
    "vocab_size": 31,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
IDS = {"eos_token_id": 1, "bos_token_id": None, "pad_token_id": 0}


def build(family: str, dtype: torch.dtype = torch.float32, seed: int = 0, **changes):
    """A model in eval mode whose output bias and weights make some tokens likely."""
    configs = {
        "gpt2": lambda: GPT2Config(vocab_size=31, n_embd=16, n_layer=2, n_head=4, n_positions=64, **IDS, **changes),
        "qwen3": lambda: Qwen3Config(
            **SIZES, head_dim=4, max_position_embeddings=64, tie_word_embeddings=True, **IDS, **changes
        ),
        "llama": lambda: LlamaConfig(**SIZES, max_position_embeddings=64, **IDS, **changes),
        "gemma2": lambda: Gemma2Config(
            **SIZES,
            head_dim=4,
            max_position_embeddings=64,
            sliding_window=5,
            final_logit_softcapping=2.0,
            **IDS,
            **changes,
        ),
        "cohere": lambda: CohereConfig(**SIZES, max_position_embeddings=64, **IDS, **changes),
        "phi": lambda: PhiConfig(**SIZES, max_position_embeddings=64, **IDS, **changes),
        "moe": lambda: Qwen3MoeConfig(
            **SIZES, head_dim=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, **IDS, **changes
        ),
        "granite": lambda: GraniteConfig(**SIZES, max_position_embeddings=64, logits_scaling=0.25, **IDS, **changes),
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
