"""The golden run of language: a one-layer model with fresh weights, five tokens an answer, rewards that a random model
earns in part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def digits(completions: list[str], **columns: Any) -> list[float]:
    """The share of words that are digits."""
    return [sum(word.isdigit() for word in text.split()) / max(len(text.split()), 1) for text in completions]


def brief(completions: list[str], **columns: Any) -> list[float]:
    """One for an answer of at most three words; a second reward, for methods that treat rewards apart."""
    return [float(len(text.split()) <= 3) for text in completions]


def table(folder: Path) -> dict[str, Any]:
    """The experiment; the runner adds the method."""
    shape = {
        "hidden_size": 8,
        "num_layers": 1,
        "num_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 16,
        "max_positions": 32,
    }
    return {
        "domain": {
            "kind": "language",
            "model": {"kind": "scratch", "dtype": "float64", "shape": shape},
            "data": {
                "num_train": 8,
                "num_held_out": 1,
                "source": {"kind": "sorting", "min_length": 2, "max_length": 3},
            },
            "rewards": {
                "digits": {"kind": "callable", "path": "tests.golden_runs.language:digits"},
                "brief": {"kind": "callable", "path": "tests.golden_runs.language:brief", "weight": 0.5},
            },
            "sampling": {"max_new_tokens": 5},
            "evaluation": {"greedy": False},
        },
        "train": {"prompts_per_step": 2, "group_size": 4},
        "optimiser": {"learning_rate": 0.7, "eps": 1.0},
    }
