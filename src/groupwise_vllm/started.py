"""A vLLM server that a run starts for itself on the loopback address, and ends."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, final

import torch

from groupwise.causal_lm.loading import save
from groupwise.config import ConfigError
from groupwise_vllm.config import VllmEngine
from groupwise_vllm.server import EngineError
from groupwise_vllm.transport import scratch_folder, without_adapter

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_PREFIX = re.compile(r"^\(\w+ pid=\d+\) (?:ERROR \S+ \S+ \[\S+\] )?")
"""The prefix that vLLM writes before the lines of its processes."""
_ERROR = re.compile(r"\b(?:\w*Error|\w*Exception|error): ")
_NO_ERROR = re.compile(r"^(?:WARNING|INFO|DEBUG)\b|root cause above|^Traceback|^Process ")
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM allows for the largest rank of an adapter."""


@final
class StartedServer:
    """A server process on a free port of 127.0.0.1. Its developer routes change weights, so that nobody else may reach
    it. On a GPU it shares that of this process; of several training processes each starts a server of its own.

    Args:
        config: executable, arguments, model name.
        model: the trained model; its base is what the server begins with.
        tokenizer: its tokenizer.
        dtype: the one that the server computes in; unset takes that of the weights.

    Raises:
        ConfigError: there is no such executable, or vLLM serves no weights of this dtype.
    """

    def __init__(self, config: VllmEngine, model: Any, tokenizer: Any, dtype: torch.dtype | None = None) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        executable = shutil.which(config.executable)
        if executable is None:
            raise ConfigError(
                f"domain.engine.executable = {config.executable!r}: there is no such command; install vLLM in an"
                " environment of its own and write the path of its bin/vllm"
            )
        dtype = dtype or next(model.parameters()).dtype
        if dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise ConfigError(
                f"domain.engine.start = true: vLLM serves no weights in {str(dtype).removeprefix('torch.')}; write"
                " domain.model.dtype = float32"
            )
        self._config = config
        self._folder = scratch_folder("vllm", model)
        folder = Path(self._folder.name)
        save(without_adapter(model), tokenizer, folder / "model")
        self.log = folder / "log"
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        command = [executable, "serve", str(folder / "model"), "--served-model-name", config.model]
        command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", str(dtype).removeprefix("torch.")]
        command += ["--logprobs-mode", "processed_logprobs"]
        if config.sleep:
            command.append("--enable-sleep-mode")
        if hasattr(model, "peft_config"):
            rank = max(adapter.r for adapter in model.peft_config.values())
            command += ["--enable-lora", "--max-lora-rank", str(next((r for r in _RANKS if r >= rank), rank))]
        environment = {
            **os.environ,
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            **_same_device(),
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(_SUPERVISOR), str(os.getpid()), *command, *config.arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C or `timeout` signals all processes of the group. The run then finishes its step, for which it
                # still needs the server.
                start_new_session=True,
            )

    def wait(self) -> None:
        """Waits until the server answers.

        Raises:
            EngineError: it ended, or does not answer within `start_seconds`; the message has the end of its log.
        """
        import httpx

        assert self._process is not None
        end = time.monotonic() + self._config.start_seconds
        while True:
            # Another program may have taken the server's port and answer in its place.
            if reason := self.exit_reason():
                raise EngineError(reason)
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.address}/health", timeout=2.0, trust_env=False).status_code == 200:
                    return
            if time.monotonic() > end:
                raise EngineError(
                    f"the vLLM server does not answer within domain.engine.start_seconds ="
                    f" {self._config.start_seconds:g}: {self._last_error()}"
                )
            time.sleep(0.2)

    def exit_reason(self) -> str:
        """Returns why the server has ended, with the end of its log; empty while it lives."""
        status = None if self._process is None else self._process.poll()
        if status is None:
            return ""
        return f"domain.engine: the vLLM server that was started has ended with status {status}: {self._last_error()}"

    def close(self) -> None:
        """Ends the server and its own processes; a second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        process.wait()
        self._folder.cleanup()

    def _last_error(self) -> str:
        return last_error(self.log.read_text(errors="replace"))


def last_error(log: str) -> str:
    """Returns the last error in a server's log, in one line. Warnings are skipped, and so is a process that only points
    to another one's error as the root cause.

    Example:
        >>> last_error("(Core pid=7) ERROR 1-2 3:4 [a.py:1] ValueError: no room\\nRuntimeError: See root cause above.")
        'ValueError: no room'
    """
    lines = [_PREFIX.sub("", line) for line in log.strip().splitlines()]
    errors = [place for place, line in enumerate(lines) if _ERROR.search(line) and not _NO_ERROR.search(line)]
    first = errors[-1] if errors else max(len(lines) - 1, 0)
    words = [line for line in lines[first : first + 3] if not _NO_ERROR.search(line)] or lines[first:]
    return " ".join(" ".join(words).split())[:400] or "it wrote nothing"


def _same_device() -> dict[str, str]:
    """Returns the environment variable that shows the server only this process's GPU; empty where the process uses
    none.
    """
    if not torch.cuda.is_initialized():
        return {}
    place = torch.cuda.current_device()
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return {"CUDA_VISIBLE_DEVICES": visible[place] if place < len(visible) else str(place)}
