"""Refusals of a server whose texts are too short, or whose tokenizer is another one than the trained."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from groupwise.causal_lm.engine.server import EngineError, Interrupted, Server


async def check_length(client: Any, server: Server, num_tokens: int) -> None:
    """Asks a server for the longest text that it continues.

    Args:
        client: an `httpx.AsyncClient`.
        server: the one that is asked; a server that does not report it passes.
        num_tokens: the number of tokens of the longest prompt and completion of the run together.

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
        num_tokens: the number of tokens of prompt and completion together, as the run asks for them.
    """
    return EngineError(
        f"domain.engine: {server.address} ends every text at {longest} tokens, where the run asks for {num_tokens} of"
        f" prompt and completion together; start it with --max-model-len={num_tokens} or more, or write a smaller"
        " domain.sampling.max_new_tokens"
    )


def _longest(text: str, model: str) -> int | None:
    """Returns the `max_model_len` of a model in a server's list; None where the list has none."""
    try:
        longest = next(entry["max_model_len"] for entry in json.loads(text)["data"] if entry["id"] == model)
        return longest if isinstance(longest, int) else None
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError):
        return None


# Compares a server's tokenizer with the trained model's. Prompts are sent as token ids, so a server with another
# vocabulary would read another text. Weights of another shape would crash it, even if it belongs to somebody else.

_NUM_PROMPTS, _NUM_TOKENS = 4, 64


async def check_vocabulary(client: Any, server: Server, tokenizer: Any, prompts: Sequence[Sequence[int]]) -> None:
    """Asks a server to tokenize a few prompts. One equal result is enough: two versions of a library may differ in a
    space.

    Args:
        client: an `httpx.AsyncClient`.
        server: the one that is asked; one without such a route, or without a tokenizer, passes.
        tokenizer: the trained model's.
        prompts: token ids.

    Raises:
        EngineError: the server tokenizes every prompt differently.
        Interrupted: it does not answer.
    """
    differing: tuple[str, list[int], list[int]] | None = None
    for prompt in prompts[:_NUM_PROMPTS]:
        text = tokenizer.decode(list(prompt[:_NUM_TOKENS]))
        expected = list(tokenizer.encode(text, add_special_tokens=False))
        if not expected:
            continue
        body = {"model": server.config.model, "prompt": text, "add_special_tokens": False}
        try:
            reply = await server.call(client, "/tokenize", body)
        except EngineError:
            return
        except Interrupted as error:
            # A server that fails at this route alone has no tokenizer, as token ids need none.
            if error.status and not error.is_busy:
                return
            raise
        tokens = reply.get("tokens") if isinstance(reply, dict) else None
        if not isinstance(tokens, list) or tokens == expected:
            return
        differing = differing or (text, tokens, expected)
    if differing is not None:
        text, tokens, expected = differing
        raise EngineError(
            f"domain.engine: {server.address} serves another model: it tokenizes {text[:40]!r} as"
            f" {_few(tokens)}, the trained model's tokenizer as {_few(expected)}; start it on the folder that is"
            " trained, or write its address"
        )


def _few(tokens: Sequence[int]) -> str:
    return f"[{', '.join(map(str, tokens[:6]))}{', ...' if len(tokens) > 6 else ''}]"
