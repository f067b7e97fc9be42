"""The shape of a server's model beside the trained one's. A server that reads weights of another shape ends at its next
request, whoever it belongs to.
"""

from __future__ import annotations

import re
from typing import Any

from groupwise.causal_lm.engine.optional_route import ask
from groupwise.causal_lm.engine.server import EngineError, Server

_EMBEDDING = re.compile(r"embedding_dim=(\d+), org_vocab_size=(\d+)")
"""How vLLM describes an embedding and a head."""


async def check_shape(client: Any, server: Server, num_tokens: int, width: int) -> None:
    """Has a server describe its model, which must have a head or an embedding of the trained head's shape.

    Args:
        client: an `httpx.AsyncClient`.
        server: the one that is asked; one that cannot tell passes.
        num_tokens: the rows of the trained head.
        width: the inputs of the trained head.

    Raises:
        EngineError: the server's model has another shape.
        Interrupted: it does not answer.
    """
    reply = await ask(client, server, "/collective_rpc", {"method": "get_model_inspection"}, is_quick=True)
    shapes = [(int(rows), int(columns)) for columns, rows in _EMBEDDING.findall(str(reply))]
    if shapes and (num_tokens, width) not in shapes:
        raise EngineError(
            f"domain.engine: {server.address} serves another model: its head is {shapes[-1][0]} x {shapes[-1][1]}, the"
            f" trained model's {num_tokens} x {width}; start it on the folder that is trained, or write its address"
        )
