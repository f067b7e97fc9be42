"""The shape of a server's model beside the trained one's. A server that reads weights of another shape ends at its next
request, or holds a mixture of two models, whoever it belongs to.
"""

from __future__ import annotations

import re
from typing import Any

from torch import nn

from groupwise.causal_lm.engine.optional_route import ask
from groupwise.causal_lm.engine.server import EngineError, Server

_EMBEDDING = re.compile(r"embedding_dim=(\d+), org_vocab_size=(\d+)")
"""How vLLM describes an embedding and a head."""

_MEMBER = re.compile(r"\((\d+)(?:-(\d+))?\): ")
"""How the description of a module in a list begins; equal ones in a row share a line."""


async def check_shape(client: Any, server: Server, model: Any) -> None:
    """Has a server describe its model, which must have a head or an embedding of the trained head's shape, and as many
    layers. Layers are told apart from other lists of modules where both models have lists of one length alone.

    Args:
        client: an `httpx.AsyncClient`.
        server: the one that is asked; one that cannot tell passes.
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
