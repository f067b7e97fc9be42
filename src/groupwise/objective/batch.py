"""Prepared rollouts: advantages and admission of whole groups, computed once and kept for every update on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import final

from jaxtyping import Bool, Float, Int
from torch import Tensor

from groupwise.objective.state import ObjectiveState
from groupwise.statistics import Statistic


@final
@dataclass(frozen=True)
class Batch:
    """Members ready for updates.

    Args:
        mask, old_log_prob, behaviour_log_prob, reference_log_prob, step_size: `[B, T]`, as in `Rollouts`.
        advantage: `[B, K]` fp64, `K` 1 or `T`.
        admitted: `[B]` bool, members of admitted groups.
        prompt: `[B]` integers from 0, the member's group.
        num_prompts: how many groups there are.
        member: `[B]` stable ids.
        auxiliary_count: name -> `[B]`.
        state: the objective's state after it has seen this batch.
        statistics: what was measured on the rewards and advantages.
        packed: whether every member's valid decisions are known to be its first ones; false is always right, and
            slower.
        density: whether log-probs are of densities, which may exceed zero.
    """

    mask: Bool[Tensor, "B T"]
    old_log_prob: Float[Tensor, "B T"]
    advantage: Float[Tensor, "B K"]
    admitted: Bool[Tensor, " B"]
    prompt: Int[Tensor, " B"]
    num_prompts: int
    member: Int[Tensor, " B"]
    state: ObjectiveState
    behaviour_log_prob: Float[Tensor, "B T"] | None = None
    reference_log_prob: Float[Tensor, "B T"] | None = None
    step_size: Float[Tensor, "B T"] | None = None
    auxiliary_count: Mapping[str, Float[Tensor, " B"]] = field(default_factory=dict)
    statistics: Mapping[str, Statistic] = field(default_factory=dict)
    packed: bool = False
    density: bool = False

    def __len__(self) -> int:
        return self.mask.shape[0]

    def select(self, rows: Int[Tensor, " N"]) -> Batch:
        """Some members, for one optimiser step."""

        def pick(value: Tensor | None) -> Tensor | None:
            return None if value is None else value[rows]

        return replace(
            self,
            mask=self.mask[rows],
            old_log_prob=self.old_log_prob[rows],
            advantage=self.advantage[rows],
            admitted=self.admitted[rows],
            prompt=self.prompt[rows],
            member=self.member[rows],
            behaviour_log_prob=pick(self.behaviour_log_prob),
            reference_log_prob=pick(self.reference_log_prob),
            step_size=pick(self.step_size),
            auxiliary_count={name: count[rows] for name, count in self.auxiliary_count.items()},
        )
