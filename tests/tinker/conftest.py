"""A server of the Tinker API: the stand-in, and a real one where `make engines` has built it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engines.tinker_server import PYTHON, serving
from tests.tinker.http_standin import StandIn, listening
from tests.tinker.place import Place

from groupwise.causal_lm.config import SmallModelConfig
from groupwise.causal_lm.small import character_tokenizer, small_model

SECONDS = 120.0


def sdk_tasks() -> set[Any]:
    """Returns what the SDK's thread works on."""
    holder = pytest.importorskip("tinker.lib.internal_client_holder", reason="the extra `tinker` is not installed")
    loop = holder._internal_client_holder_thread_singleton.get_loop()

    async def tasks() -> set[Any]:
        return asyncio.all_tasks() - {asyncio.current_task()}

    return asyncio.run_coroutine_threadsafe(tasks(), loop).result(SECONDS)


@pytest.fixture(autouse=True)
def _no_work_stays_behind() -> Iterator[None]:
    """Asserts that a test leaves no heartbeat and no call behind: they would go on, and print, in the tests that
    follow, and their retries would move the global generator.
    """
    before = sdk_tasks()
    yield
    end = time.monotonic() + SECONDS
    while left := sdk_tasks() - before:
        assert time.monotonic() < end, left
        time.sleep(0.01)


@pytest.fixture
def state() -> StandIn:
    return StandIn()


@pytest.fixture
def place(tmp_path: Path, state: StandIn) -> Iterator[Place]:
    with listening(state) as address:
        yield Place(tmp_path, address)


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
