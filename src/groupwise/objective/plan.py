"""The plan of one optimiser step: every weight and coefficient, from global counts, fixed before the first
micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from groupwise.statistics import Reduce, alone


@final
@dataclass(frozen=True)
class Plan:
    """What `loss` needs beside the live scores.

    Args:
        mask: `[B, T]` bool, valid decisions of admitted members.
        real: `[B]` bool, false for filler rows.
        weight: `[B, T]` aggregation weights `w`, fp64.
        correction: `[B, T]` behaviour correction `k`, fp64; `None` where there is none.
        advantage: `[B, K]` fp64.
        member: `[B]` stable ids.
        old_log_prob, behaviour_log_prob, reference_log_prob, step_size: `[B, T]`.
        policy_weight, beta, entropy: coefficients of this step.
        auxiliary: name -> coefficient over global denominator.
        constants: numbers to carry into the metrics.
        draw: the key of this step's random draws.
        reduce: sum over processes, for scope `batch`.
        whole: false for a part of the update.
        sliced: true for a part of members' decisions.
        detail: whether percentiles are measured.
        packed: whether every member's valid decisions are known to be its first ones.
        density: whether log-probs are of densities, which may exceed zero.
        not_finite: what a live log-prob that is not finite is: refused, or left out and counted.
    """

    mask: Bool[Tensor, "B T"]
    real: Bool[Tensor, " B"]
    weight: Float[Tensor, "B T"]
    correction: Float[Tensor, "B T"] | None
    advantage: Float[Tensor, "B K"]
    member: Int[Tensor, " B"]
    old_log_prob: Float[Tensor, "B T"]
    policy_weight: float
    beta: float
    entropy: float
    auxiliary: Mapping[str, Float[Tensor, ""]]
    constants: Mapping[str, float]
    draw: int = 0
    behaviour_log_prob: Float[Tensor, "B T"] | None = None
    reference_log_prob: Float[Tensor, "B T"] | None = None
    step_size: Float[Tensor, "B T"] | None = None
    reduce: Reduce = alone
    whole: bool = True
    sliced: bool = False
    detail: bool = True
    packed: bool = False
    density: bool = False
    not_finite: Literal["refused", "counted"] = "refused"

    def __len__(self) -> int:
        return self.mask.shape[0]

    def select(self, rows: Int[Tensor, " N"], decisions: slice | None = None) -> Plan:
        """One micro-batch of whole members, or (only where the objective's scope is `decision`) a slice of their
        decisions.

        A negative row is filler: it repeats member 0 with weight 0, so that processes with fewer members run as many
        micro-batches.
        """
        filler = (rows < 0)[:, None]
        places = rows.clamp(min=0)

        def pick(value: Tensor | None) -> Tensor | None:
            if value is None:
                return None
            chosen = value[places]
            return chosen if decisions is None or chosen.shape[1] != self.mask.shape[1] else chosen[:, decisions]

        mask, weight = pick(self.mask), pick(self.weight)
        assert mask is not None
        assert weight is not None
        return replace(
            self,
            mask=mask & ~filler,
            real=self.real[places] & (rows >= 0),
            weight=torch.where(filler, 0.0, weight),
            correction=pick(self.correction),
            advantage=pick(self.advantage),
            member=self.member[places],
            old_log_prob=pick(self.old_log_prob),
            behaviour_log_prob=pick(self.behaviour_log_prob),
            reference_log_prob=pick(self.reference_log_prob),
            step_size=pick(self.step_size),
            whole=False,
            sliced=self.sliced or decisions is not None,
            auxiliary=self.auxiliary,
        )
