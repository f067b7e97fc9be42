"""The ways of weights to a server: an adapter that is loaded in place, or a model folder that is read again.

A transport is two steps, `write` once a version and `send` once a server, so that another one (NCCL, CUDA IPC) is a
class beside these two.
"""

from __future__ import annotations

import contextlib
import copy
import secrets
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, final

from safetensors.torch import load_file, save_file

from groupwise.causal_lm.config import VllmEngine
from groupwise.causal_lm.engine.scratch_folder import ScratchFolder, scratch_folder
from groupwise.causal_lm.engine.server import EngineError, Interrupted, Server
from groupwise.causal_lm.engine.shape import check_shape
from groupwise.causal_lm.loading import save
from groupwise.config import ConfigError


class Transport(ABC):
    """A way of the trained weights to a server.

    Args:
        model: the trained model, with its adapter, if any.
        tokenizer: its tokenizer.
        parent: a folder that the servers see under the same path; where omitted, one in memory.
    """

    def __init__(self, model: Any, tokenizer: Any, parent: Path | None) -> None:
        # A server has a working directory of its own.
        self.model, self.tokenizer, self._parent = model, tokenizer, parent and parent.absolute()
        self._scratch: ScratchFolder | None = None
        if parent is not None:
            parent.mkdir(parents=True, exist_ok=True)

    @property
    def folder(self) -> Path:
        """The folder of all versions, made where it is first asked for: then the model has the weights that will lie
        there, also one that lies in shards meanwhile.
        """
        if self._scratch is None:
            self._scratch = scratch_folder("weights", self.model, self._parent)
            # Servers of another user read the weights as well.
            Path(self._scratch.name).chmod(0o755)
        return Path(self._scratch.name)

    def write(self, version: int) -> None:
        """Writes the weights of a version, and removes those of the version before."""
        target = self.path(version)
        self.save(target)
        for path in self.folder.iterdir():
            if path != target:
                shutil.rmtree(path, ignore_errors=True)

    def path(self, version: int) -> Path:
        """Returns the folder of a version; a server's cache of prompts tells versions apart by it."""
        return self.folder / f"v{version}"

    def close(self) -> None:
        """Removes what was written; a second call does nothing."""
        if self._scratch is not None:
            self._scratch.cleanup()

    async def check(self, client: Any, server: Server) -> None:  # noqa: B027
        """Refuses a server that the weights would end; does nothing by default."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Writes the weights into a new folder."""

    @abstractmethod
    async def send(self, client: Any, server: Server, version: int) -> None:
        """Makes a server hold the written version, and sets the name under which it serves them."""


@final
class FolderTransport(Transport):
    """The whole model, read again by the server from a folder while no request is under way."""

    def save(self, folder: Path) -> None:
        """Writes a plain transformers folder, an adapter merged into the weights."""
        save(self.model, self.tokenizer, folder)
        _name_head(self.model, folder / "model.safetensors")

    async def check(self, client: Any, server: Server) -> None:
        """Refuses a server whose model has another shape."""
        head = _base(self.model).get_output_embeddings()
        await check_shape(client, server, head.out_features, head.in_features)

    async def send(self, client: Any, server: Server, version: int) -> None:
        """Pauses the server, has it read the folder, forgets cached prompts, and lets it go on."""
        try:
            await server.call(client, "/pause?mode=wait", {}, is_quick=True)
            try:
                await self._reload(client, server, str(self.path(version)))
            except BaseException:
                with contextlib.suppress(EngineError, Interrupted):
                    await server.call(client, "/resume", {}, is_quick=True)
                raise
            await server.call(client, "/resume", {}, is_quick=True)
        except EngineError as error:
            raise EngineError(
                f"{error}; to take weights it must be started with VLLM_SERVER_DEV_MODE=1 in its environment, on an"
                ' address that nobody else reaches (or write domain.engine.sync = "none")'
            ) from error

    async def _reload(self, client: Any, server: Server, path: str) -> None:
        body = {"method": "reload_weights", "kwargs": {"weights_path": path}}
        try:
            await server.call(client, "/collective_rpc", body)
        except Interrupted as error:
            raise Interrupted(
                f"it did not read the weights in {path} ({error}): does it serve the model that is trained, and does it"
                " see this folder?"
            ) from None
        await server.call(client, "/reset_prefix_cache", {}, is_quick=True)


@final
class LoraTransport(Transport):
    """The adapter alone, loaded beside the base model that the server has."""

    def __init__(self, model: Any, tokenizer: Any, parent: Path | None) -> None:
        super().__init__(model, tokenizer, parent)
        self.name = f"groupwise-{secrets.token_hex(4)}"

    def save(self, folder: Path) -> None:
        """Writes the adapter as peft does."""
        save(self.model, self.tokenizer, folder, merge=False)

    async def send(self, client: Any, server: Server, version: int) -> None:
        """Has the server load the adapter in place of the version before."""
        body = {"lora_name": self.name, "lora_path": str(self.path(version)), "load_inplace": True}
        try:
            await server.call(client, "/v1/load_lora_adapter", body)
        except EngineError as error:
            raise EngineError(
                f"{error}; to take adapters it must be started with --enable-lora --max-lora-rank RANK, and with"
                ' VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment (or write domain.engine.sync = "folder")'
            ) from error
        server.model = self.name


def open_transport(config: VllmEngine, model: Any, tokenizer: Any) -> Transport | None:
    """Returns the transport that a configuration names; `None` where the servers are not sent weights.

    Raises:
        ConfigError: `lora` without an adapter.
    """
    has_adapter = hasattr(model, "peft_config")
    if config.sync == "lora" and not has_adapter:
        raise ConfigError(
            'domain.engine.sync = "lora": the run trains whole weights and has no adapter; write sync = "folder", or'
            " domain.model.lora.r = 16"
        )
    if config.sync == "none":
        return None
    kind = LoraTransport if config.sync == "lora" or (config.sync == "auto" and has_adapter) else FolderTransport
    return kind(model, tokenizer, config.folder)


def without_adapter(model: Any) -> Any:
    """Returns a copy of an adapter's base model; the model itself where it has no adapter."""
    return copy.deepcopy(model).unload() if hasattr(model, "peft_config") else model


def _base(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "peft_config") else model


def _name_head(model: Any, weights: Path) -> None:
    """Adds the head to the weights where it is tied to the embedding: vLLM on a CPU keeps a packed copy of such a head,
    and reads it again only under its own name.
    """
    base = _base(model)
    head = base.get_output_embeddings()
    name = next((f"{name}.weight" for name, module in base.named_modules() if module is head), None)
    # A model in several files has an index, which is left as it is.
    if name is None or not weights.is_file():
        return
    tensors = load_file(weights)
    if name not in tensors:
        save_file({**tensors, name: head.weight.detach().cpu().clone()}, weights, metadata={"format": "pt"})
