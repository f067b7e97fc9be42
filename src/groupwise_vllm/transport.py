"""The ways of weights to a server: an adapter that is loaded, or a model folder that is read again.

A transport is two steps, `write` once a version and `send` once a server and version, so that another one (NCCL, CUDA
IPC, an upload) is a class in one file of a user's: `domain.engine.sync = {kind = "callable", path = "mine:Class"}`.
"""

import contextlib
import copy
import os
import secrets
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from safetensors.torch import load_file, save_file

from groupwise import file_lock
from groupwise.causal_lm.backbone import base_of
from groupwise.causal_lm.loading import save
from groupwise.config import ConfigError, ImportPath, Problem, user_class, why_failed
from groupwise.processes import is_out_of_memory
from groupwise_vllm.checks import check_shape
from groupwise_vllm.config import SyncFromPath, VllmEngine
from groupwise_vllm.server import EngineError, Interrupted, Server

# Folders that a run shares with its servers, in memory where the weights fit twice.

_MEMORY = Path("/dev/shm")
_PREFIX = "groupwise-"


@final
class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder that is locked while its process lives. The lock tells processes of other containers, where
    the process number means nothing, that it is in use.
    """

    def __init__(self, prefix: str, place: Path) -> None:
        super().__init__(prefix=prefix, dir=place, ignore_cleanup_errors=True)
        self.descriptor = os.open(self.name, os.O_RDONLY)
        file_lock.take(self.descriptor, shared=True)

    def cleanup(self) -> None:
        """Removes the folder; a second call does nothing."""
        super().cleanup()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def scratch_folder(kind: str, model: Any, parent: Path | None = None) -> ScratchFolder:
    """Makes a folder that is removed when it is closed, and removes those that killed runs of this machine left behind.

    Args:
        kind: a word for its name.
        model: the weights it has to hold twice.
        parent: where to; a folder in memory where omitted, or that of temporary files where memory has no room.
    """
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    place = parent or _memory_folder(model)
    for path in place.glob(f"{_PREFIX}{kind}-*"):
        with contextlib.suppress(OSError):
            if parent is None and path.stat().st_uid == os.getuid() and _is_left(path):
                shutil.rmtree(path, ignore_errors=True)
    return ScratchFolder(f"{_PREFIX}{kind}-{os.getpid()}-", place)


def _is_left(path: Path) -> bool:
    """Tests that no process holds a folder. A folder younger than a minute counts as held, since its maker may be about
    to lock it.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return time.time() - path.stat().st_mtime > 60 and file_lock.take(descriptor)
    finally:
        os.close(descriptor)


def _memory_folder(model: Any) -> Path:
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    # A container may have a /dev/shm that nobody may write.
    is_writable = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK)
    return _MEMORY if is_writable and shutil.disk_usage(_MEMORY).free > 2.2 * size else Path(tempfile.gettempdir())


class Transport(ABC):
    """A way of the trained weights to the servers.

    Whether the weights came the servers prove afterwards, whatever the way: a transport need not look.

    Args:
        model: the trained model, with its adapter, if any.
        tokenizer: its tokenizer.
        folder: `domain.engine.folder`, which the servers see under the same path; `None` where it is not set.
    """

    def __init__(self, model: Any, tokenizer: Any, folder: Path | None) -> None:
        self.model, self.tokenizer = model, tokenizer

    @abstractmethod
    def write(self, version: int) -> None:
        """Takes the weights of a version, counted from 0, and forgets those of the version before. The model has them
        during this call; a model in shards is elsewhere afterwards, and servers that come back are sent them later.
        """

    @abstractmethod
    async def send(self, client: Any, server: Server, version: int) -> None:
        """Makes a server hold the version that was written last, and sets `server.model` where it serves them under
        another name than before. Prompts that the server has cached must be forgotten.

        Args:
            client: an `httpx.AsyncClient`, without deadlines of its own.
            server: `server.call(client, "/collective_rpc", {...})` posts to it, with its deadlines.
            version: the version of the weights.

        Raises:
            Interrupted: another try may succeed; the server is asked again, for `patience_seconds` at most.
            EngineError: none will; the run ends.
        """

    async def check(self, client: Any, server: Server) -> None:  # noqa: B027
        """Refuses a server that these weights would crash, before any are sent; does nothing by default."""

    async def leave(self, client: Any, server: Server) -> None:  # noqa: B027
        """Removes what a server should not keep after the run; does nothing by default."""

    def close(self) -> None:  # noqa: B027
        """Removes what was written; a second call does nothing."""


class FileTransport(Transport):
    """A transport that writes every version into a new folder, in memory where `domain.engine.folder` is not set."""

    def __init__(self, model: Any, tokenizer: Any, folder: Path | None) -> None:
        super().__init__(model, tokenizer, folder)
        # The server has another working directory.
        self._parent = folder and folder.absolute()
        self._scratch: ScratchFolder | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def folder(self) -> Path:
        """The folder of all versions, made where it is first asked for: then the model has the weights that will be
        there, also one that is in shards meanwhile.
        """
        if self._scratch is None:
            self._scratch = scratch_folder("weights", self.model, self._parent)
            # A server may run as another user, who reads the weights as well.
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
        """Returns the folder of a version."""
        return self.folder / f"v{version}"

    def close(self) -> None:
        """Removes what was written; a second call does nothing."""
        if self._scratch is not None:
            self._scratch.cleanup()

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Writes the weights into a new folder."""


@final
class FolderTransport(FileTransport):
    """The whole model, read again by the server from a folder while no request is under way."""

    def save(self, folder: Path) -> None:
        """Writes a plain transformers folder, an adapter merged into the weights."""
        save_whole(self.model, self.tokenizer, folder)

    async def check(self, client: Any, server: Server) -> None:
        """Refuses a server whose model has another shape."""
        await check_shape(client, server, base_of(self.model))

    async def send(self, client: Any, server: Server, version: int) -> None:
        """Lets the server read the folder."""
        await reload_folder(client, server, str(self.path(version)))


def save_whole(model: Any, tokenizer: Any, folder: Path) -> None:
    """Writes a plain transformers folder that vLLM can read again, an adapter merged into the weights.

    Args:
        model: the trained model.
        tokenizer: its tokenizer.
        folder: a new one.
    """
    save(model, tokenizer, folder)
    _name_head(model, folder / "model.safetensors")


async def reload_folder(client: Any, server: Server, path: str) -> None:
    """Pauses a server, has it read a model folder, forgets cached prompts, and lets it go on.

    Args:
        client: an `httpx.AsyncClient`.
        server: the one that reads.
        path: the path of the folder, as the server sees it.

    Raises:
        Interrupted: it does not answer, or did not read the weights.
        EngineError: it lacks the routes.
    """
    try:
        await server.call(client, "/pause?mode=wait", {}, is_quick=True)
        try:
            await _reload(client, server, path)
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


async def _reload(client: Any, server: Server, path: str) -> None:
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
class LoraTransport(FileTransport):
    """The adapter alone, loaded in addition to the base model that the server has.

    Every version has a name of its own, so that no answer can be of another version or another run. vLLM would take new
    weights under an old name too (`load_inplace`), but then reads the files again for every token that it generates.
    """

    def __init__(self, model: Any, tokenizer: Any, folder: Path | None) -> None:
        super().__init__(model, tokenizer, folder)
        self.name = f"groupwise-{secrets.token_hex(4)}"

    def save(self, folder: Path) -> None:
        """Writes the adapter as peft does."""
        save(self.model, self.tokenizer, folder, merge=False)

    async def send(self, client: Any, server: Server, version: int) -> None:
        """Lets the server load the adapter and unload the one before."""
        name = f"{self.name}-v{version}"
        body = {"lora_name": name, "lora_path": str(self.path(version))}
        try:
            await server.call(client, "/v1/load_lora_adapter", body)
        except EngineError as error:
            # The server took this version before the connection broke.
            if "already been loaded" not in str(error):
                raise EngineError(
                    f"{error}; to take adapters it must be started with --enable-lora --max-lora-rank RANK, and with"
                    ' VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment (or write domain.engine.sync = "folder")'
                ) from error
        if server.model != name:
            await self.leave(client, server)
        server.model = name

    async def leave(self, client: Any, server: Server) -> None:
        """Lets the server unload the adapter. It would go on listing it, and end at a request for it: vLLM reads the
        files of an adapter again that another one has displaced.
        """
        if server.model.startswith(self.name):
            with contextlib.suppress(EngineError, Interrupted):
                await server.call(client, "/v1/unload_lora_adapter", {"lora_name": server.model}, is_quick=True)
            server.model = server.config.model


def without_adapter(model: Any) -> Any:
    """Returns a copy of an adapter's base model; the model itself where it has no adapter."""
    return copy.deepcopy(model).unload() if hasattr(model, "peft_config") else model


def _name_head(model: Any, weights: Path) -> None:
    """Adds the head to the weights where it is tied to the embedding. vLLM on a CPU keeps a packed copy of such a head,
    and reads it again only under the head's own name.
    """
    base = base_of(model)
    head = base.get_output_embeddings()
    name = next((f"{name}.weight" for name, module in base.named_modules() if module is head), None)
    # A model in several files has an index, which is left as it is.
    if name is None or not weights.is_file():
        return
    tensors = load_file(weights)
    if name not in tensors:
        save_file({**tensors, name: head.weight.detach().cpu().clone()}, weights, metadata={"format": "pt"})


def transport_class(path: ImportPath) -> type[Transport]:
    """Loads the class of a transport.

    Raises:
        ConfigError: there is no such class that extends `Transport` and has all its methods.
    """
    return user_class(path, Transport, "domain.engine.sync.path")


@contextmanager
def named(transport: Transport, method: str) -> Iterator[None]:
    """Names the class and the method in every failure: a transport may be a user's, and fail in any way.

    Raises:
        Interrupted: a connection failed, or took too long; another try may succeed.
        EngineError: any other error.
    """
    import httpx

    place = f"domain.engine.sync: {type(transport).__name__}.{method} failed"
    try:
        yield
    except (EngineError, Interrupted, ConfigError):
        raise
    except (httpx.HTTPError, ConnectionError, TimeoutError) as error:
        # The error of an HTTP status has a second line, which is dropped.
        raise Interrupted(
            f"{place}: {type(error).__name__}: {str(error).partition(chr(10))[0]}".rstrip(": ")
        ) from error
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise EngineError(f"{place}: {why_failed(error)}") from error


# The choice of the weights' way to the servers.


def open_transport(config: VllmEngine, model: Any, tokenizer: Any) -> Transport | None:
    """Returns the transport that a configuration names; `None` where the servers are not sent weights.

    Raises:
        ConfigError: `lora` without an adapter, or a user's class that cannot be made.
    """
    sync, has_adapter = config.sync, hasattr(model, "peft_config")
    if isinstance(sync, SyncFromPath):
        kind = transport_class(sync.path)
        try:
            return kind(model, tokenizer, config.folder, **sync.arguments)
        except Exception as error:  # a user's class may fail in any way
            if is_out_of_memory(error):
                raise
            arguments = "".join(f", {name}={value!r}" for name, value in sync.arguments.items())
            message = f"{kind.__name__}(model, tokenizer, folder{arguments}) failed: {why_failed(error)}"
            raise ConfigError(Problem(f"domain.engine.sync.path = {str(sync.path)!r}", message)) from error
    if sync == "lora" and not has_adapter:
        raise ConfigError(
            'domain.engine.sync = "lora": the run trains whole weights and has no adapter; write sync = "folder", or'
            " domain.model.lora.r = 16"
        )
    if sync == "none":
        return None
    kind = LoraTransport if sync == "lora" or (sync == "auto" and has_adapter) else FolderTransport
    return kind(model, tokenizer, config.folder)
