"""Two training processes in one: engines that share a server, and what the first process tells the second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from groupwise.causal_lm.sampler import Engine


class Peer:
    """One of the processes, as an engine sees the others."""

    def __init__(self, gather: Callable[[Any], list[Any]]) -> None:
        self.gather = gather


def open_pair(make: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """The engines of processes 0 and 1 of two."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    engines = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        engines.append(make())
    return engines


def send_weights(engines: list[Engine], prompts: list[list[int]], max_new_tokens: int) -> None:
    """Both engines follow the weights, one after the other: the second hears what the first told."""
    told: list[Any] = []
    first, second = engines
    first.send_weights(prompts, max_new_tokens, Peer(lambda value: told.append(value) or [value, value]))
    second.send_weights(prompts, max_new_tokens, Peer(lambda value: [told.pop(0), value]))
