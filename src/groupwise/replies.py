"""What a server answers, read with limits: so many seconds, so many bytes on the wire and unpacked, JSON that is no
trap.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final


@final
class ReplyError(Exception):
    """There is no reply that can be used; says why in one line."""


@final
@dataclass(frozen=True)
class Reply:
    """What a server answered.

    Args:
        status: of HTTP.
        body: unpacked.

    Example:
        >>> Reply(200, b'{"a": 1}').json()
        {'a': 1}
    """

    status: int
    body: bytes

    @property
    def text(self) -> str:
        """The body as text, whatever its bytes."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ReplyError: it is none, or too deep to be read.
        """
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ReplyError("its JSON is nested too deeply") from None
        # A number of thousands of digits is one too.
        except ValueError as error:
            raise ReplyError(f"it is no JSON that can be read: {error}") from None


async def post(client: Any, url: str, body: Mapping[str, Any], *, seconds: float, max_bytes: int) -> Reply:
    """Sends JSON and reads the answer while it comes, so that one that is too large is never held.

    Args:
        client: an `httpx.AsyncClient`.
        url: where to.
        body: what is sent.
        seconds: for everything; a server that trickles bytes meets it too.
        max_bytes: of the reply, packed and unpacked.

    Raises:
        ReplyError: no connection, no end within its time, too large, or packed in a way that was not asked for.
    """
    import httpx

    # What is not packed cannot unpack into more than was sent.
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    try:
        async with (
            asyncio.timeout(seconds),
            client.stream("POST", url, content=json.dumps(body).encode(), headers=headers) as answer,
        ):
            content = Unpacked(answer.headers.get("content-encoding", "identity"), max_bytes)
            async for chunk in answer.aiter_raw():
                content.add(chunk)
            return Reply(answer.status_code, content.whole())
    except TimeoutError:
        raise ReplyError(f"TimeoutError: no whole reply within {seconds:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ReplyError(f"{type(error).__name__}: {error}") from None


@final
class Unpacked:
    """A body, put together from its parts within a limit.

    Args:
        encoding: how it is packed, as the server says.
        max_bytes: packed and unpacked.

    Raises:
        ReplyError: packed in a way that is not read here.

    Example:
        >>> body = Unpacked("gzip", max_bytes=1000)
        >>> body.add(zlib.compress(bytes(10_000_000)))
        Traceback (most recent call last):
        ...
        groupwise.replies.ReplyError: the reply is larger than 1,000 bytes
    """

    def __init__(self, encoding: str, max_bytes: int) -> None:
        self.max_bytes, self._parts, self._read, self._size = max_bytes, [], 0, 0
        packed = encoding.strip().lower()
        if packed not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise ReplyError(f"the reply is packed as {packed[:40]!r}, which was not asked for")
        both_kinds = 47
        self._unpack = None if packed in ("", "identity") else zlib.decompressobj(both_kinds)

    def add(self, part: bytes) -> None:
        """Takes the next part.

        Args:
            part: as it came.

        Raises:
            ReplyError: it is too much, or not packed as was said.
        """
        self._read += len(part)
        try:
            new = part if self._unpack is None else self._unpack.decompress(part, self.max_bytes - self._size + 1)
        except zlib.error as error:
            raise ReplyError(f"the reply cannot be unpacked: {error}") from None
        self._size += len(new)
        if max(self._size, self._read) > self.max_bytes:
            raise ReplyError(f"the reply is larger than {self.max_bytes:,} bytes")
        self._parts.append(new)

    def whole(self) -> bytes:
        """All parts together."""
        return b"".join(self._parts)
