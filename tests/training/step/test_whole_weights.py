"""Where the whole weights lie while a domain draws, and who is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from groupwise.training.distributed import World
from groupwise.training.step.state import whole_weights


class Spread:
    """A learner and its domain, which note what is asked of them."""

    def __init__(self, **attributes: bool) -> None:
        self.draws_in_shards = self.samples_remotely = False
        self.sends_weights = True
        vars(self).update(attributes)
        self.learner: Any = self
        self.asked: list[str] = []

    @contextmanager
    def gathered(self, *, on_cpu: bool = False, here: bool = True) -> Iterator[None]:
        self.asked.append(("on the CPU" if on_cpu else "on the device") if here else "by others")
        yield
        self.asked.append("freed")

    def send_weights(self, peers: World) -> None:
        self.asked.append("sent")


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, ["on the device", "sent", "drawn", "freed"]),
        ({"samples_remotely": True}, ["on the CPU", "sent", "drawn", "freed"]),
        ({"samples_remotely": True, "sends_weights": False}, ["by others", "sent", "drawn", "freed"]),
        # Without servers that all share, each process draws by itself.
        ({"sends_weights": False}, ["on the device", "sent", "drawn", "freed"]),
        ({"draws_in_shards": True}, ["sent", "drawn"]),
    ],
)
def test_the_weights_are_gathered_and_sent_before_anything_is_drawn(
    attributes: dict[str, bool], expected: list[str]
) -> None:
    domain: Any = Spread(**attributes)
    with whole_weights(domain, World()):
        domain.asked.append("drawn")
    assert domain.asked == expected
