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

from groupwise.objective.acted import Acted, part
from groupwise.statistics import Reduce, sum_over_one_process


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
