"""The interface of a policy: draw, score again, compare with a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor, nn

Fields = dict[str, Tensor]


def wide(value: Tensor) -> Tensor:
    """Converts to at least single precision: a log-prob of half precision is no more than a guess."""
    return value.to(torch.promote_types(value.dtype, torch.float32))


@final
@dataclass(frozen=True)
class Drawn:
    """The images that were drawn, and their log-probs.

    Args:
        images: `[B, C, H, W]` in [0, 1].
        payload: rows that scoring needs again, `[B, ...]` each.
        fields: of `Scored`, `[B, T]` each, without gradient.
    """

    images: Tensor
    payload: Mapping[str, Tensor]
    fields: Fields


class Policy(Protocol):
    """A distribution over restored images (or over a network's controls), given by a network.

    `unit` is what a log-prob is per; `supplies` the fields of `Scored` it can give.
    """

    unit: str
    supplies: frozenset[str]

    def check(self, module: nn.Module, image: Tensor, target: Tensor) -> None:
        """Refuses a network, or images of a size, that do not suit the policy.

        Args:
            image: `[1, C, H, W]`, as the network is given it.
            target: `[1, C, scale H, scale W]`, of the size that it gives.
        """
        ...

    def draw(
        self,
        module: nn.Module,
        degraded: Tensor,
        group_size: int,
        generators: Sequence[torch.Generator] | None,
        sigma: float | None,
        requires: frozenset[str],
    ) -> Drawn:
        """Draws a group for each of the `P` images, member by member.

        Args:
            degraded: `[P, C, H, W]`.
            group_size: members of a group.
            generators: one a member, `P group_size` of them; None takes the mode, which is the network as it ships.
            sigma: overrides the configured spread.
            requires: fields beside the log-prob.
        """
        ...

    def predict(self, module: nn.Module, degraded: Tensor) -> Sequence[Tensor]:
        """Computes the distribution's parameters for each image, `[P, ...]` each, with gradient.

        Args:
            degraded: `[P, C, H, W]`, each image once.
        """
        ...

    def fields(self, predicted: Sequence[Tensor], payload: Mapping[str, Tensor], requires: frozenset[str]) -> Fields:
        """Computes fields `[B, T]` of members.

        Args:
            predicted: what `predict` returned for each member's image, `[B, ...]` each.
            payload: the rows of these members in what `draw` and `reference` returned.
            requires: fields beside the log-prob.
        """
        ...

    def reference(
        self, module: nn.Module, degraded: Tensor, row: Tensor, payload: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Computes what `exact_divergence` needs of the active network, `[B, ...]` each."""
        ...
