"""Starts and ends a real server of the Tinker API, in the environment that `make engines` builds."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENGINES = Path(os.environ.get("GROUPWISE_ENGINES", ROOT / ".engines"))
PYTHON = ENGINES / "tinker" / "bin" / "python"
_START_SECONDS = 600


@contextmanager
def serving(model: Path, folder: Path) -> Iterator[str]:
    """Serves a model on loopback within the block and gives the server's address.

    Args:
        model: folder of a transformers model; its path is the name of the base model.
        folder: for the server's log and state.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "HF_HUB_OFFLINE": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "JAX_COMPILATION_CACHE_DIR": str(ENGINES / "jax_cache"),
    }
    log = folder / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [PYTHON, ROOT / "tests/engines/serve_tinker.py", model, str(port), folder / "state"],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_well(address, process, log)
        yield address
    finally:
        # The server waits for open connections, and its engine for the server: both are ended.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def _wait_until_well(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended at its start: {log.read_text()[-2000:]}")
        try:
            urllib.request.urlopen(f"{address}/api/v1/healthz", timeout=2).close()
            return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"the server did not answer within {_START_SECONDS} s: {log.read_text()[-2000:]}")
