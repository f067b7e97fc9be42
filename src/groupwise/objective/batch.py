"""Prepared rollouts: advantages and admission of whole groups, computed once and kept for every update on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from groupwise.objective.acted import Acted
from groupwise.objective.state import ObjectiveState
from groupwise.statistics import Statistic


@final
@dataclass(frozen=True)
class Batch:
    """Members ready for updates.

    Args:
        acted: their decisions, as recorded.
        advantage: `[B, K]` fp64, `K` 1 or `T`.
        sampled: `[B]` bool, members that count: false for one whose reward is missing.
        admitted: `[B]` bool, those of admitted groups.
        prompt: `[B]` integers from 0, the member's group.
        num_prompts: the number of groups.
        state: the objective's state after this batch.
        auxiliary_count: name -> `[B]`.
        statistics: the metrics of the rewards and advantages.
    """

    acted: Acted
    advantage: Float[Tensor, "B K"]
    sampled: Bool[Tensor, " B"]
    admitted: Bool[Tensor, " B"]
    prompt: Int[Tensor, " B"]
    num_prompts: int
    state: ObjectiveState
    auxiliary_count: Mapping[str, Float[Tensor, " B"]] = field(default_factory=dict)
    statistics: Mapping[str, Statistic] = field(default_factory=dict)

    @staticmethod
    def of(acted: Acted, advantage: Float[Tensor, "B K"], state: ObjectiveState) -> Batch:
        """Returns a batch of members whose advantages were computed elsewhere, all admitted and of one group.

        Args:
            acted: the members' decisions.
            advantage: `[B, K]` fp64.
            state: the state of the objective.
        """
        members = len(acted)
        return Batch(
            acted,
            advantage,
            sampled=(everyone := torch.ones(members, dtype=torch.bool, device=advantage.device)),
            admitted=everyone,
            prompt=torch.zeros(members, dtype=torch.long, device=advantage.device),
            num_prompts=1,
            state=state,
        )

    def __len__(self) -> int:
        return len(self.acted)

    def select(self, rows: Int[Tensor, " N"]) -> Batch:
        """Returns some members, for one optimiser step."""
        return replace(
            self,
            acted=self.acted.select(rows),
            advantage=self.advantage[rows],
            sampled=self.sampled[rows],
            admitted=self.admitted[rows],
            prompt=self.prompt[rows],
            auxiliary_count={name: count[rows] for name, count in self.auxiliary_count.items()},
        )
