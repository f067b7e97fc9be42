"""TRL's samples and rewards as our records: whole groups of all processes, from which every process keeps its
members.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, final

import torch
from torch import Tensor

from groupwise.objective import Objective
from groupwise.objective.batch import Batch, ObjectiveState, Plan
from groupwise.records import Cotangents, Rollouts, Scored
from groupwise.statistics import Reduce, Statistic, add, finish, reduce_statistics


@final
@dataclass(frozen=True)
class Sampled:
    """The members of one generation that live on this process.

    Args:
        batch: advantages and admission, from whole groups.
        fresh: TRL kept no old log-probs, because every update on this generation is on-policy.
    """

    batch: Batch
    fresh: bool


def decision_mask(output: Mapping[str, Any]) -> Tensor:
    """Returns `[B, T]` bool: the tokens of the completion that the model chose and that TRL trains on (not cut off, not
    a tool's).
    """
    mask = output["completion_mask"] if "tool_mask" not in output else output["completion_mask"] * output["tool_mask"]
    return mask.bool()


def behaviour_log_prob(output: Mapping[str, Any], old: Tensor) -> Tensor:
    """Returns the log-probs that the sampler recorded; where it recorded none (NaN), those of the old policy."""
    sampler_log_prob = output["sampling_per_token_logps"].to(old.dtype)
    return torch.where(sampler_log_prob.isnan(), old, sampler_log_prob.clamp(max=0.0))


def gathered_rollouts(
    output: Mapping[str, Any],
    old: Tensor | None,
    behaviour: Tensor | None,
    rewards: Tensor,
    names: Sequence[str],
    weights: Sequence[float],
    group_size: int,
    gather: Callable[[Tensor], Tensor],
) -> Rollouts:
    """Gathers the rollouts of all processes, in TRL's order: a group may have members on several processes.

    Args:
        output: the return value of TRL's generation on this process.
        old: `[B, T]` log-probs in nats, or `None` where the live ones serve.
        behaviour: `[B, T]` log-probs of the sampler, in nats.
        rewards: `[B of all processes, rewards]`, NaN where missing.
        names, weights: of the rewards, in the order of their columns.
        group_size: members of a prompt.
        gather: stacks the `[B, T]` of all processes, padded to the widest.
    """
    mask = decision_mask(output)
    reference = output.get("ref_per_token_logps")
    columns = rewards.double().T.tolist()
    unique_names = [name if names.count(name) == 1 else f"{name}_{place}" for place, name in enumerate(names)]
    return Rollouts(
        group=torch.arange(len(rewards), device=mask.device) // group_size,
        mask=gather(mask.to(torch.uint8)).bool(),
        # On-policy, the first forward of each micro-batch gives the old log-probs; nothing reads these zeros.
        old_log_prob=gather(torch.zeros(mask.shape, device=mask.device) if old is None else old),
        rewards={
            name: [None if value != value else value for value in column]
            for name, column in zip(unique_names, columns, strict=True)
        },
        reward_weights=dict(zip(unique_names, weights, strict=True)),
        behaviour_log_prob=None if behaviour is None else gather(behaviour),
        reference_log_prob=None if reference is None else gather(reference),
    )


def local_members(batch: Batch, start: int, shape: torch.Size) -> Batch:
    """Selects the members of this process, at the width they were sampled with."""
    rows = torch.arange(start, start + shape[0], device=batch.acted.mask.device)
    return replace(batch.select(rows), acted=batch.acted.select(rows, slice(shape[1])))


@final
@dataclass
class Window:
    """The micro-batches of one optimiser step, or of its part in one generation.

    Args:
        objective: its loss is computed.
        plan: weights of the whole step.
        rows: the places of each micro-batch in the plan, in order.
        fresh: the policy has not moved since the rollouts: `old_log_prob` is the live one, detached.
        share: the share of the optimiser step; below 1 where the step reaches over two generations.
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
    ) -> "Window":
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
