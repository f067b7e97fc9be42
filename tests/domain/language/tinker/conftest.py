"""A real server of the Tinker API, where `make engines` has built one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from groupwise.causal_lm.config import SmallModelConfig
from groupwise.causal_lm.scratch import character_tokenizer, small_model

ROOT = Path(__file__).parents[4]
ENGINES = Path(os.environ.get("GROUPWISE_ENGINES", ROOT / ".engines"))


@dataclass(frozen=True)
class Server:
    address: str
    model: Path
    checkpoints: Path


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("tinker", reason="the extra `tinker` is not installed")
    python = ENGINES / "tinker" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no server of the Tinker API at {python}: `make engines` builds it")
    folder = tmp_path_factory.mktemp("tinker")
    tokenizer = character_tokenizer("0123456789+= ")
    shape = SmallModelConfig(hidden_size=32, num_layers=2, num_heads=2)
    small_model(shape, tokenizer, 0, torch.float32).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "HF_HUB_OFFLINE": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "JAX_COMPILATION_CACHE_DIR": str(ENGINES / "jax_cache"),
    }
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [python, ROOT / "tests/engines/serve_tinker.py", folder / "model", str(port), folder / "state"],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert process.poll() is None, (folder / "server.log").read_text()[-2000:]
            try:
                urllib.request.urlopen(f"{address}/api/v1/healthz", timeout=2).close()
                break
            except OSError:
                time.sleep(0.5)
        yield Server(address, folder / "model", folder / "state" / "checkpoints")
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
