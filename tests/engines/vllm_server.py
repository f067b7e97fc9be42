"""A real vLLM on a CPU, in the environment that `make engines` builds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from groupwise_vllm.config import VllmEngine
from groupwise_vllm.started import StartedServer

ROOT = Path(__file__).parents[2]
ENGINES = Path(os.environ.get("GROUPWISE_ENGINES", ROOT / ".engines"))
EXECUTABLE = ENGINES / "vllm" / "bin" / "vllm"
ARGUMENTS = (
    "--enforce-eager",
    # A prompt that is forwarded in pieces and a seed end the engine on a CPU.
    "--no-enable-chunked-prefill",
    "--max-num-batched-tokens=8192",
    "--max-num-seqs=64",
)
ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


def started_engine(*more: str, **changes: object) -> VllmEngine:
    """The configuration of an engine that starts its own server."""
    return VllmEngine(start=True, executable=str(EXECUTABLE), arguments=(*ARGUMENTS, *more), **changes)


@contextmanager
def serving_vllm(model: object, tokenizer: object, *more: str) -> Iterator[StartedServer]:
    """A server that belongs to nobody's run, for the length of the block."""
    server = StartedServer(started_engine(*more), model, tokenizer)
    try:
        server.wait()
        yield server
    finally:
        server.close()


def processes_of(executable: Path) -> list[str]:
    """The processes whose command line names an executable, without those that another worker of the tests started."""
    command = ["ps", "-eo", "pid,ppid,args"]
    rows = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    parents = {int(row.split(None, 2)[0]): int(row.split(None, 2)[1]) for row in rows}

    def is_of_another_worker(process: int) -> bool:
        """Started below the process that started this one, and not below this one."""
        lineage = [process]
        while lineage[-1] in parents and parents[lineage[-1]] > 1:
            lineage.append(parents[lineage[-1]])
        return os.getpid() not in lineage and os.getppid() in lineage

    named = [row for row in rows if str(executable) in row]
    return [row for row in named if not is_of_another_worker(int(row.split(None, 1)[0]))]
