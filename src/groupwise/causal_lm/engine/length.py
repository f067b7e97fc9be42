"""The longest text that a server continues, beside the longest one of the run."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from groupwise.causal_lm.engine.server import EngineError, Interrupted, Server


async def check_length(client: Any, server: Server, num_tokens: int) -> None:
    """Asks a server for the longest text that it continues.

    Args:
        client: an `httpx.AsyncClient`.
        server: the one that is asked; one that does not tell passes.
        num_tokens: of the longest prompt and completion of the run together.

    Raises:
        Interrupted: there is no connection, or no reply in time.
        EngineError: its texts end earlier.
    """
    import httpx

    seconds = server.config.silence_seconds
    try:
        async with asyncio.timeout(seconds):
            reply = await client.get(f"{server.address}/v1/models")
    except TimeoutError:
        raise Interrupted(f"no sign of life for {seconds:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Interrupted(f"{type(error).__name__}: {error}".rstrip(": ")) from None
    longest = _longest(reply.text, server.config.model)
    if longest is not None and longest < num_tokens:
        raise too_short(server, longest, num_tokens)


def too_short(server: Server, longest: int, num_tokens: int) -> EngineError:
    """Returns the error of a server whose texts end before those of the run.

    Args:
        server: the one.
        longest: where they end, tokens.
        num_tokens: of prompt and completion together, as the run asks for them.
    """
    return EngineError(
        f"domain.engine: {server.address} ends every text at {longest} tokens, where the run asks for {num_tokens} of"
        f" prompt and completion together; start it with --max-model-len={num_tokens} or more, or write a smaller"
        " domain.sampling.max_new_tokens"
    )


def _longest(text: str, model: str) -> int | None:
    """Returns the `max_model_len` of a model in a server's list; None where it is not told."""
    try:
        longest = next(entry["max_model_len"] for entry in json.loads(text)["data"] if entry["id"] == model)
        return longest if isinstance(longest, int) else None
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError):
        return None
