"""Refusals of a server whose texts are too short, or whose model or tokenizer is another one than the trained."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from groupwise_vllm.server import EngineError, Interrupted, Server


async def ask(client: Any, server: Server, path: str, body: Mapping[str, Any], *, is_quick: bool = False) -> Any:
    """Returns a server's reply; None where it refuses the request or fails at this route alone, as a server that lacks
    the route does. If a server fails at every route, the next request finds it.

    Args:
        client, path, body, is_quick: see `Server.call`.
        server: the one that is asked.

    Raises:
        Interrupted: it does not answer, or is busy.
    """
    try:
        return await server.call(client, path, body, is_quick=is_quick)
    except EngineError:
        return None
    except Interrupted as error:
        if error.status and not error.is_busy:
            return None
        raise


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


# Compares the shape of a server's model with the trained one's. A server that reads weights of another shape crashes at
# its next request or holds a mixture of two models, even if it belongs to somebody else.

_EMBEDDING = re.compile(r"embedding_dim=(\d+), org_vocab_size=(\d+)")
"""vLLM's description of an embedding or a head."""

_MEMBER = re.compile(r"\((\d+)(?:-(\d+))?\): ")
"""The start of a line about a module in a list; equal modules in a row share a line."""


async def check_shape(client: Any, server: Server, model: Any) -> None:
    """Asks a server to describe its model, which must have a head or an embedding of the trained head's shape, and as
    many layers. Layers are distinguished from other lists of modules where both models have lists of one length alone.

    Args:
        client: an `httpx.AsyncClient`.
        server: the one that is asked; a server that cannot describe it passes.
        model: the trained one, without its adapter.

    Raises:
        EngineError: the server's model has another shape.
        Interrupted: it does not answer.
    """
    reply = await ask(client, server, "/collective_rpc", {"method": "get_model_inspection"}, is_quick=True)
    results = reply.get("results") if isinstance(reply, dict) else None
    text = "\n".join(map(str, results)) if isinstance(results, list) else ""
    head, shapes = model.get_output_embeddings(), [tuple(map(int, shape)) for shape in _EMBEDDING.findall(text)]
    if shapes and (head.in_features, head.out_features) not in shapes:
        width, rows = shapes[-1]
        _refuse(server, f"its head is {rows} x {width}, the trained model's {head.out_features} x {head.in_features}")
    lengths = {len(module) for module in model.modules() if isinstance(module, nn.ModuleList)}
    served = lengths_of_lists(text)
    if len(served) == len(lengths) == 1 and served != lengths:
        _refuse(server, f"it has {served.pop()} layers, the trained model {lengths.pop()}")


def lengths_of_lists(text: str) -> set[int]:
    """Returns the lengths of the lists of modules in vLLM's description of a model.

    Example:
        >>> lengths_of_lists(
        ...     "Model()(\\n  (layers): ModuleList()(\\n    (0-2): 3 x Layer()\\n    (3): Other()\\n  )\\n)"
        ... )
        {4}
    """
    lengths, around = dict[int, int](), list[tuple[int, int, str]]()
    for number, line in enumerate(text.splitlines()):
        content = line.lstrip()
        indent = len(line) - len(content)
        while around and around[-1][0] >= indent:
            around.pop()
        if (member := _MEMBER.match(content)) and around and "ModuleList" in around[-1][2]:
            lengths[around[-1][1]] = int(member[2] or member[1]) + 1
        around.append((indent, number, content))
    return set(lengths.values())


def _refuse(server: Server, difference: str) -> None:
    raise EngineError(
        f"domain.engine: {server.address} serves another model: {difference}; start it on the folder that is trained,"
        " or write its address"
    )


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
