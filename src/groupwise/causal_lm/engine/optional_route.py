"""Questions to a server that may lack the route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupwise.causal_lm.engine.server import EngineError, Interrupted, Server


async def ask(client: Any, server: Server, path: str, body: Mapping[str, Any], *, is_quick: bool = False) -> Any:
    """Returns what a server replies; None where it refuses the request or fails at this route alone, as one that does
    not know it. One that fails at every route is found by the next request.

    Args:
        client, path, body, is_quick: as of `Server.call`.
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
