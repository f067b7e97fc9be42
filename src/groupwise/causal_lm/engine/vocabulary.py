"""The tokenizer of a server beside the trained model's. Prompts go by token ids, so that a server of another vocabulary
would read another text; and weights of another shape end it, whoever it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groupwise.causal_lm.engine.optional_route import ask
from groupwise.causal_lm.engine.server import EngineError, Server

_NUM_PROMPTS, _NUM_TOKENS = 4, 64


async def check_vocabulary(client: Any, server: Server, tokenizer: Any, prompts: Sequence[Sequence[int]]) -> None:
    """Has a server tokenize a few prompts. One that agrees is enough: two versions of a library may differ in a space.

    Args:
        client: an `httpx.AsyncClient`.
        server: the one that is asked; one without such a route, or without a tokenizer, passes.
        tokenizer: the trained model's.
        prompts: token ids.

    Raises:
        EngineError: the server tokenizes every prompt otherwise.
        Interrupted: it does not answer.
    """
    differing: tuple[str, list[int], list[int]] | None = None
    for prompt in prompts[:_NUM_PROMPTS]:
        text = tokenizer.decode(list(prompt[:_NUM_TOKENS]))
        expected = list(tokenizer.encode(text, add_special_tokens=False))
        if not expected:
            continue
        body = {"model": server.config.model, "prompt": text, "add_special_tokens": False}
        reply = await ask(client, server, "/tokenize", body)
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
