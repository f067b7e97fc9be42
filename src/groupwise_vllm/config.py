"""The configuration of vLLM servers as an engine. Imports neither torch nor transformers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

from pydantic import Field, model_validator

from groupwise.causal_lm.config import EngineConfig
from groupwise.config import Config, InModule, may_run
from groupwise.config.errors import Parallel, Seconds

if TYPE_CHECKING:
    from groupwise.causal_lm.backbone import Backbone
    from groupwise.causal_lm.sampler import Engine

_OF_THE_RUN = {
    "--port": "leave it out",
    "--host": "leave it out",
    "--uds": "leave it out",
    "--served-model-name": "write domain.engine.model",
}
"""Arguments of a started server that would move it to another address, and what to write instead."""


@final
class SyncFromPath(Config):
    """A user's way of sending weights to the servers.

    Args:
        path: `package.module:Class`, a subclass of `groupwise_vllm.transport.Transport`; the module may be
            in the working directory.
        arguments: the arguments of the class, by name, after the model, its tokenizer and `domain.engine.folder`.
    """

    kind: Literal["callable"] = "callable"
    path: InModule
    arguments: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_a_transport(self) -> SyncFromPath:
        if may_run(self.path):
            from groupwise_vllm.transport import transport_class

            transport_class(self.path)
        return self


VLLM_MEMORY_SHARE = 0.92
"""The share of a GPU's memory that `vllm serve` takes where no argument names one (vLLM 0.32)."""


@final
class VllmEngine(EngineConfig):
    """Sampling by one or several vLLM servers, through their OpenAI-compatible completions with token ids.

    The servers receive the weights as they change, and after every change their log-probs of a few sequences are
    compared with the trainer's: a difference beyond rounding ends the run. Evaluation samples from them as well.

    Args:
        address: the address of the server, without the path; a list for several, which share the groups of a batch.
            Where several processes train, the first has the first of them, the second the second, and so on in turn;
            fewer servers than processes are shared by all, and the first process sends the weights.
        model: name under which the servers serve the model.
        sync: how the weights go there: `lora` loads the adapter alone, `folder` reloads a model folder, `auto` chooses
            by whether an adapter is trained. With `none` whoever runs the server refreshes it; evaluation then samples
            in this process, and a behaviour correction sees how far the server lags. A table with
            ``kind = "callable"`` names a class of your own.
        folder: where the weights are written for the servers, who must see it under the same path; where omitted, a
            folder in memory (`/dev/shm`), for servers on this machine.
        start: starts a server on this machine, on an address of its own, and ends it with the run; one for each process
            that trains, on that process's GPU.
        sleep: between two batches the servers give the GPU back to the trainer (vLLM's sleep mode): their weights are
            in the machine's memory, and their cache is forgotten. A server of your own has to be started with
            ``--enable-sleep-mode`` and ``VLLM_SERVER_DEV_MODE=1``; after the run it sleeps.
        executable: the command that is started.
        arguments: further arguments of `vllm serve`.
        processed_logprobs: the server was started with ``--logprobs-mode processed_logprobs``, so that its log-probs
            are those after temperature, top-k and top-p. Without, only temperature 1 and no truncation can be used,
            where both are the same.
        concurrency: requests under way at once.
        start_seconds: longest wait for a server that is started.
        first_token_seconds: longest wait for the first token of a completion.
        silence_seconds: longest wait for the next token.
        timeout_seconds: longest wait for one completion.
        patience_seconds: how long a server that is paused, busy or gone is asked again before the run does without it.
    """

    kind: Literal["vllm"] = "vllm"
    address: str | tuple[str, ...] = "http://localhost:8000"
    model: str = "policy"
    sync: Literal["auto", "lora", "folder", "none"] | SyncFromPath = "auto"
    folder: Path | None = None
    start: bool = False
    sleep: bool = False
    executable: str = "vllm"
    arguments: tuple[str, ...] = ()
    processed_logprobs: bool = True
    concurrency: Parallel = 64
    start_seconds: Seconds = 600.0
    first_token_seconds: Seconds = 60.0
    silence_seconds: Seconds = 10.0
    timeout_seconds: Seconds = 600.0
    patience_seconds: Seconds = 60.0

    has_servers: ClassVar[bool] = True

    def open(self, backbone: Backbone, tokenizer: Any) -> Engine:
        """Opens the engine over a model."""
        from groupwise_vllm.vllm import Vllm

        return Vllm(backbone, tokenizer, self)

    @property
    def sends_weights(self) -> bool:
        """Whether the run sends the weights to the servers."""
        return self.sync != "none"

    @property
    def server_sleeps(self) -> bool:
        """Whether the servers give the GPU back between two batches."""
        return self.sleep

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses, without a slash at their end."""
        addresses = (self.address,) if isinstance(self.address, str) else self.address
        return tuple(address.rstrip("/") for address in addresses)

    @property
    def memory_share(self) -> float:
        """The share of a GPU's memory that a server started by the run takes; 0 where the run starts none.

        Example:
            >>> VllmEngine(start=True, arguments=("--gpu-memory-utilization", "0.5")).memory_share
            0.5
        """
        if not self.start:
            return 0.0
        words = [word for argument in self.arguments for word in argument.split("=", 1)]
        after = {name.replace("_", "-"): value for name, value in itertools.pairwise(words)}
        try:
            return float(after.get("--gpu-memory-utilization", VLLM_MEMORY_SHARE))
        except ValueError:
            return VLLM_MEMORY_SHARE

    @model_validator(mode="after")
    def _has_an_address(self) -> VllmEngine:
        if not self.addresses:
            raise ValueError('address: the list is empty; write address = "http://HOST:PORT"')
        if len(set(self.addresses)) < len(self.addresses):
            raise ValueError("address: an address stands in the list twice; write each server once")
        if self.start and self.sync == "none":
            raise ValueError('start = true with sync = "none": the server would never follow; leave sync out')
        for argument in self.arguments if self.start else ():
            name = argument.partition("=")[0].replace("_", "-")
            if name in _OF_THE_RUN:
                raise ValueError(f"arguments: {argument}: the run itself writes {name}; {_OF_THE_RUN[name]}")
        return self
