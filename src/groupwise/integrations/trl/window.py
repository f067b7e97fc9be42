"""One optimiser step of TRL's trainer, or its part in one generation: its plan from the counts of all its
micro-batches, and each micro-batch's share of the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import final

import torch
from torch import Tensor

from groupwise.objective import Objective
from groupwise.objective.batch import Batch
from groupwise.objective.plan import Plan
from groupwise.objective.state import ObjectiveState
from groupwise.records import Cotangents, Scored
from groupwise.statistics import Reduce, Statistic, add, finish, reduce_statistics


@final
@dataclass
class Window:
    """The micro-batches of one optimiser step, or of its part in one generation.

    Args:
        objective: its loss is computed.
        plan: weights of the whole step.
        rows: the places of each micro-batch in the plan, in order.
        fresh: the policy has not moved since the rollouts: `old_log_prob` is the live one, detached.
        share: of the optimiser step; below 1 where the step reaches over two generations.
        entropy_per_token: the coefficient of an entropy bonus that is a mean over tokens, divided by their number; 0
            where the bonus has the weights of the aggregation.
        cotangents: for an objective that looks at the whole step, the gradient by each field, known before the first
            micro-batch.
    """

    objective: Objective
    plan: Plan
    rows: Sequence[Tensor]
    fresh: bool
    share: float = 1.0
    entropy_per_token: float = 0.0
    cotangents: Cotangents | None = None
    taken: int = 0
    statistics: list[Mapping[str, Statistic]] = field(default_factory=list)

    @staticmethod
    def open(
        objective: Objective,
        batch: Batch,
        rows: Sequence[Tensor],
        fresh: bool,
        state: ObjectiveState,
        reduce: Reduce,
        score: Callable[[int], Scored],
        *,
        share: float = 1.0,
        mean_entropy: bool = False,
    ) -> Window:
        """Plans the step over the members `rows` of a batch; `score(i)` rescores micro-batch i where the objective
        looks at all micro-batches together. With `mean_entropy` an entropy bonus is the mean over tokens, as in TRL.
        """
        plan = objective.plan(batch.select(torch.cat(list(rows))), state, reduce, not_finite="counted")
        bounds = torch.tensor([0, *(len(places) for places in rows)]).cumsum(0).tolist()
        row_places = [torch.arange(start, end, device=plan.acted.mask.device) for start, end in pairwise(bounds)]
        entropy_per_token = 0.0
        if mean_entropy and plan.entropy:
            entropy_per_token = plan.entropy / max(float(reduce(plan.acted.mask.double().sum())), 1.0)
            plan = replace(plan, entropy=0.0)
        window = Window(objective, plan, row_places, fresh, share, entropy_per_token)
        if objective.scope == "batch" and len(rows) > 1:
            with torch.no_grad():
                tensors = [score(place).tensors() for place in range(len(rows))]
            scored = Scored.from_tensors(
                {name: torch.cat([tensor_table[name] for tensor_table in tensors]) for name in tensors[0]}
            )
            window.cotangents = objective.cotangents(scored, window._on_policy(plan, scored))
            window.statistics.append(window.cotangents.loss.statistics)
        return window

    @property
    def full(self) -> bool:
        """True when `loss` was called for every micro-batch."""
        return self.taken == len(self.rows)

    def loss(self, scored: Scored) -> Tensor:
        """Returns the share of the next micro-batch; shares sum to the loss of the step, over processes too."""
        rows = self.rows[self.taken]
        self.taken += 1
        plan = self.plan if len(self.rows) == 1 else self.plan.select(rows)
        if self.cotangents is None:
            loss = self.objective.loss(scored, self._on_policy(plan, scored))
            self.statistics.append(loss.statistics)
            total = loss.total
        else:
            cotangents = self.cotangents.scored.select(rows).tensors()
            linear = sum(
                (cotangents[name] * _finite(value)).sum()
                for name, value in scored.tensors().items()
                if name in cotangents
            )
            assert isinstance(linear, Tensor)
            # The gradient of the step, and as value an equal part of its loss.
            total = linear - linear.detach() + self.cotangents.loss.total / len(self.rows)
        if self.entropy_per_token and scored.entropy is not None:
            total = total - self.entropy_per_token * torch.where(plan.acted.mask, _finite(scored.entropy), 0.0).sum()
        # A step without any active term still needs something to differentiate.
        if scored.log_prob.requires_grad and not total.requires_grad:
            total = total + 0.0 * _finite(scored.log_prob).sum()
        return self.share * total

    def metrics(self, reduce: Reduce) -> dict[str, float]:
        """Returns the metrics of the whole step, over all processes."""
        return finish(reduce_statistics(add(self.statistics), reduce))

    def _on_policy(self, plan: Plan, scored: Scored) -> Plan:
        if not self.fresh:
            return plan
        return replace(plan, acted=replace(plan.acted, old_log_prob=scored.log_prob.detach()))


def _finite(values: Tensor) -> Tensor:
    """Returns `values` with 0 where they are not finite: 0 times infinity is NaN."""
    return torch.where(values.isfinite(), values, 0.0)
