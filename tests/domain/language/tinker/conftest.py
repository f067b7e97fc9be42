"""A real server of the Tinker API, where `make engines` has built one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engines.tinker_server import PYTHON, serving

from groupwise.causal_lm.config import SmallModelConfig
from groupwise.causal_lm.scratch import character_tokenizer, small_model

# A call that was given up is retried by the SDK's thread, also during the tests that follow; its jitter would move the
# global generator while one of them tests that a domain does not.
with suppress(ImportError):
    from tinker.lib import retry_handler

    module: Any = retry_handler
    module.random = random.Random(0)


@dataclass(frozen=True)
class Server:
    address: str
    model: Path
    checkpoints: Path


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("tinker", reason="the extra `tinker` is not installed")
    if not PYTHON.exists():
        pytest.skip(f"no server of the Tinker API at {PYTHON}: `make engines` builds it")
    folder = tmp_path_factory.mktemp("tinker")
    tokenizer = character_tokenizer("0123456789+= ")
    shape = SmallModelConfig(hidden_size=32, num_layers=2, num_heads=2)
    small_model(shape, tokenizer, 0, torch.float32).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    with serving(folder / "model", folder) as address:
        yield Server(address, folder / "model", folder / "state" / "checkpoints")
