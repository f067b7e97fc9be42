"""Replies of servers, read within limits on seconds, on bytes, and on the depth of JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ssl import SSLContext


class ReplyError(Exception):
    """The error of a request without a usable reply; its message states the reason in one line."""


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
        """The body as text; bytes that are not UTF-8 are replaced."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Parses the body as JSON.

        Raises:
            ReplyError: the body is not JSON, or is nested too deeply.
        """
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ReplyError("its JSON is nested too deeply") from None
        # Python also raises ValueError for an integer of thousands of digits.
        except ValueError as error:
            raise ReplyError(f"it is no JSON that can be read: {error}") from None


@cache
def certificates() -> SSLContext:
    """Returns the certificates that the clients of this package trust. They are read once: `httpx` by itself reads them
    again for every client, which takes longer than most requests.
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
        max_bytes: limit of the reply's size, unpacked.

    Raises:
        ReplyError: there is no connection, the reply does not end within its time, or is too large.
    """
    import httpx

    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    content = bytearray()
    try:
        async with (
            asyncio.timeout(seconds),
            client.stream("POST", url, content=json.dumps(body).encode(), headers=headers) as answer,
        ):
            async for chunk in answer.aiter_bytes():
                content += chunk
                if len(content) > max_bytes:
                    raise ReplyError(f"the reply is larger than {max_bytes:,} bytes")
            return Reply(answer.status_code, bytes(content))
    except TimeoutError:
        raise ReplyError(f"TimeoutError: no whole reply within {seconds:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ReplyError(f"{type(error).__name__}: {error}") from None
