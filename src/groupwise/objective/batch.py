"""Prepared rollouts: advantages and admission of whole groups, computed once and kept for every update on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.decisions import Acted, part
from groupwise.objective.grouped import Running
from groupwise.statistics import Reduce, Statistic, sum_over_one_process


@final
class ObjectiveState(Config):
    """State of an objective. Passed in and returned, never hidden.

    Args:
        step: optimiser steps so far; schedules read it.
        beta: the current coefficient of an adaptive divergence, `None` for schedules that depend on the step alone.
        entropy: the same of the entropy bonus.
        running: running statistics of rewards, for advantages that use them.

    Example:
        >>> state = ObjectiveState(step=3)
        >>> ObjectiveState.model_validate(state.model_dump(mode="json")) == state
        True
    """

    step: int = 0
    beta: float | None = None
    entropy: float | None = None
    running: Running = Running()


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


@final
@dataclass(frozen=True)
class Plan:
    """Everything that `loss` needs, except the live scores.

    Args:
        acted: the recorded decisions; the mask holds the valid decisions of admitted members.
        real: `[B]` bool, false for filler rows.
        weight: `[B, T]` aggregation weights `w`, fp64.
        correction: `[B, T]` behaviour correction `k`, fp64; `None` without a correction.
        advantage: `[B, K]` fp64.
        policy_weight, beta, entropy: coefficients of this step.
        auxiliary: name -> coefficient over global denominator.
        constants: numbers to carry into the metrics.
        draw: the key of this step's random draws.
        reduce: sum over processes, for scope `batch`.
        whole: true for the plan of a whole update, false for one of its micro-batches.
        sliced: true for a slice of members' decisions.
        detail: whether percentiles are measured.
        not_finite: the treatment of a live log-prob that is not finite: it is refused, or left out and counted.
    """

    acted: Acted
    real: Bool[Tensor, " B"]
    weight: Float[Tensor, "B T"]
    correction: Float[Tensor, "B T"] | None
    advantage: Float[Tensor, "B K"]
    policy_weight: float
    beta: float
    entropy: float
    auxiliary: Mapping[str, Float[Tensor, ""]]
    constants: Mapping[str, float]
    draw: int = 0
    reduce: Reduce = sum_over_one_process
    whole: bool = True
    sliced: bool = False
    detail: bool = True
    not_finite: Literal["refused", "counted"] = "refused"

    def __len__(self) -> int:
        return len(self.acted)

    def select(self, rows: Int[Tensor, " N"], decisions: slice | None = None) -> Plan:
        """Returns one micro-batch of whole members, or (only where the objective's scope is `decision`) a slice of
        their decisions.

        A negative row is filler: it repeats member 0 with weight 0, so that processes with fewer members run as many
        micro-batches.
        """
        weight = part(self.weight, rows, decisions)
        return replace(
            self,
            acted=self.acted.select(rows, decisions),
            real=part(self.real, rows) & (rows >= 0),
            weight=torch.where((rows < 0)[:, None], 0.0, weight),
            correction=None if self.correction is None else part(self.correction, rows, decisions),
            advantage=part(self.advantage, rows, decisions),
            whole=False,
            sliced=self.sliced or decisions is not None,
        )
