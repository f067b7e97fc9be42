"""A transport of a user's class: its failures are one line that names it, and what it waits for has a deadline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, final

from groupwise.causal_lm.config import SyncFromPath
from groupwise.causal_lm.engine.server import EngineError, Interrupted, Server
from groupwise.causal_lm.engine.transport import Transport
from groupwise.config import ConfigError, ImportPath, Problem, user_class, why_failed
from groupwise.processes import is_out_of_memory

log = logging.getLogger("groupwise")


def transport_class(path: ImportPath) -> type[Transport]:
    """Loads the class of a transport.

    Raises:
        ConfigError: there is no such class that extends `Transport` and has all its methods.
    """
    return user_class(path, Transport, "domain.engine.sync.path")


@final
class UserTransport(Transport):
    """A transport that calls one of a user's.

    Args:
        sync: its class and arguments.
        model, tokenizer, folder: as of `Transport`.
        seconds: how long one server may take.

    Raises:
        ConfigError: the class does not take the arguments, or fails.
    """

    def __init__(self, sync: SyncFromPath, model: Any, tokenizer: Any, folder: Path | None, seconds: float) -> None:
        super().__init__(model, tokenizer, folder)
        self._place, self._seconds = f"domain.engine.sync.path = {str(sync.path)!r}", seconds
        named_class = transport_class(sync.path)
        try:
            self._transport = named_class(model, tokenizer, folder, **sync.arguments)
        except Exception as error:  # a user's class may fail in any way
            if is_out_of_memory(error):
                raise
            arguments = "".join(f", {name}={value!r}" for name, value in sync.arguments.items())
            message = f"{named_class.__name__}(model, tokenizer, folder{arguments}) failed: {why_failed(error)}"
            raise ConfigError(Problem(self._place, message)) from error

    def write(self, version: int) -> None:
        """Has the user's transport take the weights."""
        with self._told("write"):
            self._transport.write(version)

    async def check(self, client: Any, server: Server) -> None:
        """Has the user's transport look at a server."""
        async with self._in_time("check"):
            await self._transport.check(client, server)

    async def send(self, client: Any, server: Server, version: int) -> None:
        """Has the user's transport send the weights."""
        async with self._in_time("send"):
            await self._transport.send(client, server, version)

    async def leave(self, client: Any, server: Server) -> None:
        """Has the user's transport take back what a server should not keep; a failure ends nothing any more."""
        try:
            async with self._in_time("leave"):
                await self._transport.leave(client, server)
        except (EngineError, Interrupted, ConfigError) as error:
            log.warning("%s", error)

    def close(self) -> None:
        """Has the user's transport remove what it wrote; a failure ends nothing any more."""
        try:
            with self._told("close"):
                self._transport.close()
        except (EngineError, Interrupted, ConfigError) as error:
            log.warning("%s", error)

    @asynccontextmanager
    async def _in_time(self, method: str) -> AsyncIterator[None]:
        """Ends a call at its deadline. A connection that fails may be there at another try."""
        import httpx

        try:
            async with asyncio.timeout(self._seconds) as deadline:
                with self._told(method, httpx.HTTPError, ConnectionError, TimeoutError):
                    yield
        except TimeoutError as error:
            late = f"takes longer than domain.engine.timeout_seconds = {self._seconds:g}"
            reason = late if deadline.expired() else f"failed: {why_failed(error)}"
            raise Interrupted(f"{self._place}: {method} {reason}") from error
        except (httpx.HTTPError, ConnectionError) as error:
            # It was raised in the library's code, which is no place of the user's. A status has a second line.
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}".rstrip(": ")
            raise Interrupted(f"{self._place}: {method} failed: {reason}") from error

    @contextmanager
    def _told(self, method: str, *passing: type[Exception]) -> Iterator[None]:
        """Names the class and the method where a call fails.

        Raises:
            EngineError: it failed, by another error than those that pass.
        """
        try:
            yield
        except (EngineError, Interrupted, ConfigError, *passing):
            raise
        except Exception as error:  # a user's code may fail in any way
            if is_out_of_memory(error):
                raise
            raise EngineError(f"{self._place}: {method} failed: {why_failed(error)}") from error
