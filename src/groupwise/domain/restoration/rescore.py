"""Scores members again: the network sees each degraded image once, and what a member holds is read a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from groupwise.domain.joined_rows import joined_rows
from groupwise.domain.pass_sizes import PassSizes
from groupwise.domain.protocol import Samples
from groupwise.domain.restoration.policy.base import Fields

_SHOWN = frozenset({"degraded", "images", "clean"})
"""Entries of a payload that a score reads no member's row of: the degraded images are taken once a group, and people
and rewards see the others.
"""


def distinct(samples: Samples, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Selects the degraded image of each group of members `rows` once, and the image's place for each of these members:
    a group is one pass of the network.
    """
    groups, place = samples.group[rows].unique(return_inverse=True)
    # Any member of a group will do: all have the same image.
    member = torch.zeros(len(groups), dtype=torch.long, device=place.device).scatter_(0, place, rows.to(place.device))
    return samples.payload["degraded"][member], place


def rescored(
    compute: Callable[[Tensor, Mapping[str, Any]], Fields], samples: Samples, rows: Tensor, passes: PassSizes
) -> Fields:
    """Computes fields of members `rows`, `[B, ...]` each, from a few of their payloads at a time; with gradient where
    it is on.

    Args:
        compute: fields of members by their places among `rows`, `[b]`, and by their payload.
        samples: whose payload is read.
        rows: `[B]`, none negative.
        passes: how many at a time.
    """

    def fields_of(places: Tensor) -> Fields:
        members = rows[places.to(rows.device)]
        payload = {
            name: value[members.to(value.device)] for name, value in samples.payload.items() if name not in _SHOWN
        }
        return compute(places, payload)

    places = torch.arange(len(rows), device=samples.mask.device)
    return joined_rows(passes.apply(fields_of, places), len(rows))
