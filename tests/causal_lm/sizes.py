"""Sizes of the tiny models of several families."""

from __future__ import annotations

SIZES = {
    "vocab_size": 31,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
IDS = {"eos_token_id": 1, "bos_token_id": None, "pad_token_id": 0}

GROUPED = {**SIZES, "num_key_value_heads": 2}
"""With a key for two queries."""
