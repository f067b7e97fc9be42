"""A language domain small enough to be built in a test: one layer, the cups game, a handful of prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from groupwise.config import merge, validate
from groupwise.domain.language.config import LanguageConfig
from groupwise.domain.language.domain import LanguageDomain
from groupwise.streams import Streams

TINY = {
    "model": {
        "kind": "scratch",
        "shape": {
            "hidden_size": 16,
            "num_layers": 1,
            "num_heads": 2,
            "num_key_value_heads": 1,
            "intermediate_size": 32,
            "max_positions": 64,
        },
        "dtype": "float64",
    },
    "data": {"source": {"kind": "cups", "num_cups": 3, "num_swaps": 3}, "num_train": 8, "num_held_out": 6},
    "demonstrations": {"num": 12},
    "sampling": {"max_new_tokens": 8},
    "rewards": {
        "correct": {"kind": "exact_answer", "extract": {"after": "answer"}},
        "worked": {"kind": "callable", "path": "groupwise.domain.language.source.toys:worked", "role": "judge"},
    },
}


def tiny_config(**over: Any) -> LanguageConfig:
    return validate(LanguageConfig, merge(TINY, over))


@pytest.fixture
def build() -> Callable[..., LanguageDomain]:
    """Builds a tiny domain with some settings changed."""
    return lambda **over: LanguageDomain(tiny_config(**over), streams=Streams(0))


@pytest.fixture
def config() -> Callable[..., LanguageConfig]:
    return tiny_config
