"""Replies of servers, read within limits on seconds, on bytes (sent and unpacked), and on the depth of JSON."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from ssl import SSLContext


@final
class ReplyError(Exception):
    """The error of a request without a usable reply; its message states the reason in one line."""


@final
@dataclass(frozen=True)
class Reply:
    """The reply of a server.

    Args:
        status: the HTTP status.
        body: the unpacked bytes.

    Example:
        >>> Reply(200, b'{"a": 1}').json()
        {'a': 1}
    """

    status: int
    body: bytes

    @property
    def text(self) -> str:
        """The body as text; bytes that are no UTF-8 are replaced."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Parses the body as JSON.

        Raises:
            ReplyError: the body is no JSON, or is nested too deeply.
        """
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ReplyError("its JSON is nested too deeply") from None
        # Python raises ValueError also at an integer of thousands of digits.
        except ValueError as error:
            raise ReplyError(f"it is no JSON that can be read: {error}") from None


@cache
def certificates() -> SSLContext:
    """Returns the certificates that a client of ours trusts. They are read once: `httpx` by itself reads them anew for
    every client, which takes longer than most requests.
    """
    import httpx

    return httpx.create_ssl_context()


async def post(client: Any, url: str, body: Mapping[str, Any], *, seconds: float, max_bytes: int) -> Reply:
    """Sends JSON and reads the reply in chunks, so that a reply that is too large is never held in memory.

    Args:
        client: an `httpx.AsyncClient`.
        url: address of the server.
        body: JSON-able values to send.
        seconds: deadline of the whole exchange, also for a server that trickles bytes.
        max_bytes: limit of the reply's size, as sent and unpacked.

    Raises:
        ReplyError: there is no connection, the reply does not end within its time, is too large, or has an encoding
            that was not requested.
    """
    import httpx

    # A reply that is not packed cannot unpack into more bytes than were sent.
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    try:
        async with (
            asyncio.timeout(seconds),
            client.stream("POST", url, content=json.dumps(body).encode(), headers=headers) as answer,
        ):
            content = Unpacked(answer.headers.get("content-encoding", "identity"), max_bytes)
            async for chunk in answer.aiter_raw():
                content.add(chunk)
            return Reply(answer.status_code, content.joined())
    except TimeoutError:
        raise ReplyError(f"TimeoutError: no whole reply within {seconds:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ReplyError(f"{type(error).__name__}: {error}") from None


@final
class Unpacked:
    """A body that is unpacked and joined from its chunks within a limit of bytes.

    Args:
        encoding: the server's content-encoding.
        max_bytes: limit of the size, as sent and unpacked.

    Raises:
        ReplyError: the encoding is none of identity, gzip and deflate.

    Example:
        >>> body = Unpacked("gzip", max_bytes=1000)
        >>> body.add(zlib.compress(bytes(10_000_000)))
        Traceback (most recent call last):
        ...
        groupwise.replies.ReplyError: the reply is larger than 1,000 bytes
    """

    def __init__(self, encoding: str, max_bytes: int) -> None:
        self.max_bytes, self._chunks, self._read, self._size = max_bytes, [], 0, 0
        packed = encoding.strip().lower()
        if packed not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise ReplyError(f"the reply is packed as {packed[:40]!r}, which was not asked for")
        # 32 makes zlib detect gzip or deflate from the header; 15 is its widest window.
        window_bits = 32 + 15
        self._unpack = None if packed in ("", "identity") else zlib.decompressobj(window_bits)

    def add(self, chunk: bytes) -> None:
        """Takes the next chunk as it was sent.

        Raises:
            ReplyError: the body is larger than the limit, or not packed as its encoding says.
        """
        self._read += len(chunk)
        try:
            unpacked = (
                chunk if self._unpack is None else self._unpack.decompress(chunk, self.max_bytes - self._size + 1)
            )
        except zlib.error as error:
            raise ReplyError(f"the reply cannot be unpacked: {error}") from None
        self._size += len(unpacked)
        if max(self._size, self._read) > self.max_bytes:
            raise ReplyError(f"the reply is larger than {self.max_bytes:,} bytes")
        self._chunks.append(unpacked)

    def joined(self) -> bytes:
        """Returns the body."""
        return b"".join(self._chunks)
