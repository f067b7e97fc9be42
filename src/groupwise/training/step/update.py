"""One optimiser step: a plan from global counts, micro-batches of whole members, one summed and clipped gradient, one
update or none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from groupwise.domain.protocol import Samples
from groupwise.learner.protocol import StepNumbers
from groupwise.objective import Batch, Objective, Plan
from groupwise.objective.acted import Acted
from groupwise.records import Scored
from groupwise.schedule import Constant
from groupwise.statistics import Mean, Statistic, add, finish
from groupwise.training.job import Recipe
from groupwise.training.step.collect import Collected
from groupwise.training.step.fitting import Parts, fit_micro_batch, retrying
from groupwise.training.step.micro_batches import micro_batches, num_micro_batches
from groupwise.training.step.state import TrainState
from groupwise.training.step.step import Step

_NOT_FINITE = "log_prob/not_finite"


@final
@dataclass
class Updates:
    """What the optimiser steps of one step of the loop did.

    Args:
        metrics: one dictionary an optimiser step, reduced over processes.
        log_ratio: `[B, T]` nats, of each decision at its last scoring; 0 where it was only updated on-policy.
        taken, skipped, not_finite: how many.
        remarks: sentences for people.
    """

    log_ratio: Tensor
    metrics: list[dict[str, float]] = field(default_factory=list)
    taken: int = 0
    skipped: int = 0
    not_finite: int = 0
    remarks: list[str] = field(default_factory=list)

    def mean(self) -> dict[str, float]:
        """The mean of every metric over the optimiser steps that have it."""
        names = dict.fromkeys(name for each in self.metrics for name in each)
        return {name: _mean([each[name] for each in self.metrics if name in each]) for name in names}


def update_policy(step: Step, collected: Collected | None) -> Updates:
    """All optimiser steps of one step of the loop.

    `updates_per_batch` passes over the rollouts, each in `minibatches` parts of whole groups; without rollouts, one
    step of the auxiliary terms alone.
    """
    updates = Updates(torch.zeros(0) if collected is None else torch.zeros_like(collected.samples.old_log_prob))
    if collected is None or collected.batch is None:
        _optimise(step, None, None, updates)
        return updates
    step.state.objective = collected.batch.state
    for number in range(step.recipe.train.updates_per_batch):
        for rows in _minibatches(step, collected, number):
            _optimise(step, collected, rows, updates)
    return updates


def _minibatches(step: Step, collected: Collected, number: int) -> list[Tensor]:
    """This process's rows of each minibatch; groups are dealt by their place in the step, the same for any number of
    processes.
    """
    places = sorted({place for part in step.world.gather(collected.place.unique().tolist()) for place in part})
    minibatches = step.recipe.train.minibatches
    if minibatches == 1:
        return [torch.arange(len(collected.place), device=collected.place.device)]
    order = step.streams.numpy("minibatches", step.state.progress.step, number).permutation(len(places))
    bounds = [round(part * len(places) / minibatches) for part in range(minibatches + 1)]
    parts = []
    for start, end in itertools.pairwise(bounds):
        chosen = torch.tensor(
            [places[index] for index in order[start:end]], dtype=collected.place.dtype, device=collected.place.device
        )
        if len(chosen):
            parts.append(torch.isin(collected.place, chosen).nonzero()[:, 0])
    return parts


def _optimise(step: Step, collected: Collected | None, rows: Tensor | None, updates: Updates) -> None:
    recipe, state, world = step.recipe, step.state, step.world
    on_policy, learner = updates.taken == 0, state.learner
    learner.zero_gradients()
    accumulate: list[Callable[[], Parts]] = []
    if collected is not None and rows is not None:
        accumulate.append(lambda: policy_gradient(step, collected, rows, updates.log_ratio, on_policy=on_policy))
    if (shown := shown_now(step, len(updates.metrics))) is not None:
        measured = fit_micro_batch(step, shown, shown.auxiliary_count["supervised"], frozenset({"log_prob"}))
        updates.remarks += [measured] if measured else []
        accumulate.append(lambda: supervised_gradient(step, shown))
    parts = retrying(step, accumulate, updates.remarks.append)
    learner.reduce_gradients(world)
    pulled = (
        state.reference.pull(recipe.train.l2_to_reference) if recipe.train.l2_to_reference and recipe.samples else None
    )
    size = learner.step(step_numbers(recipe, state))
    metrics = finish(world.sum_statistics(add(parts)))
    metrics["grad_norm"] = size
    if pulled is not None:
        metrics["loss_l2"] = pulled
        metrics["loss"] = metrics.get("loss", 0.0) + pulled
    broken = metrics.get(_NOT_FINITE, 0.0)
    if broken:
        updates.remarks.append(
            f"{broken:.0f} decisions had a log-prob under the policy that was not finite and were left out"
        )
    # Where nothing is left of an update but decisions without a number, its gradient is 0.
    if not math.isfinite(size) or (broken and size == 0.0):
        updates.not_finite += 1
        metrics = {_NOT_FINITE: broken} if broken else {}
    elif size == 0.0:
        # Nothing would change but the optimiser's own momentum and decay: every group was flat, and no other term is
        # active.
        updates.skipped += 1
    else:
        updates.taken += 1
        if (average := recipe.train.weight_average) is not None:
            state.progress.average_step += 1
            state.average.mix(1 - average.decay_after(state.progress.average_step))
    state.objective = recipe.objective.observe(state.objective, metrics)
    updates.metrics.append(metrics)


def step_numbers(recipe: Recipe, state: TrainState) -> StepNumbers:
    """Returns the optimiser's numbers at the step of the stage where the run stands.

    Args:
        recipe: the stage.
        state: of the run.
    """
    config = recipe.optimiser
    return StepNumbers(
        learning_rate=config.rate(state.progress.stage_step),
        beta1=config.beta1,
        beta2=config.beta2,
        eps=config.eps,
        weight_decay=config.weight_decay,
        max_grad_norm=recipe.train.max_grad_norm,
    )


@final
@dataclass(frozen=True)
class _Part:
    """The members of one optimiser step on this process.

    Args:
        samples: of the whole batch.
        rows: which of them.
        batch: these members, prepared.
        plan: of the update.
        on_policy: whether no update was taken on the batch yet.
    """

    samples: Samples
    rows: Tensor
    batch: Batch
    plan: Plan
    on_policy: bool


def policy_gradient(step: Step, collected: Collected, rows: Tensor, log_ratio: Tensor, *, on_policy: bool) -> Parts:
    """Accumulates the gradient of the policy's terms over `rows` and returns their statistics.

    Two ways to the same gradient. Scored with gradient, micro-batch by micro-batch. Or through cotangents: the loss's
    gradient by each scored field is known before the model runs, which the sampler's own fields allow for the first
    update, and which scope `batch` and a learner that does not differentiate here require.
    """
    assert collected.batch is not None
    objective, recorded = step.objective, collected.samples.recorded
    batch = collected.batch.select(rows)
    plan = objective.plan(batch, step.state.objective, step.world.sum, not_finite="counted")
    part = _Part(collected.samples, rows, batch, plan, on_policy)
    share: Parts = [{"on_policy_share": Mean.number(float(on_policy))}]
    if on_policy and recorded is not None and objective.requires <= set(recorded.tensors()) and not plan.auxiliary:
        return share + _by_cotangents(step, part, recorded.select(rows).detach())
    if objective.scope == "batch" or not step.state.learner.differentiates:
        scored = _scored(step, part)
        _note_log_ratio(log_ratio, rows, scored, batch)
        return share + _by_cotangents(step, part, scored)
    return share + _by_loss(step, part, log_ratio)


def _by_loss(step: Step, part: _Part, log_ratio: Tensor) -> Parts:
    objective, rows, plan, size = step.objective, part.rows, part.plan, step.members_at_once
    alive = _alive(plan)
    lengths = part.batch.acted.mask.sum(1)
    count = step.world.max(num_micro_batches(len(alive), size))
    parts: Parts = [{"scored_share": _share(alive, plan)}]
    for chosen in micro_batches(lengths[alive], size, count):
        # Filler repeats this process's first member with weight 0; a process that has no member at all has nothing to
        # repeat.
        if len(rows) == 0:
            break
        places = torch.where(chosen >= 0, alive[chosen.clamp(min=0)], chosen) if len(alive) else chosen
        scored = step.domain.score(part.samples, rows[places.clamp(min=0)], objective.requires)
        loss = objective.loss(scored, plan.select(places))
        if loss.total.requires_grad:
            loss.backward()
        real = places[places >= 0]
        live = scored.detach().select(torch.arange(len(real), device=rows.device))
        _note_log_ratio(log_ratio, rows[real], live, part.batch.select(real))
        parts.append(
            {
                **loss.statistics,
                "padding_share/update": _padding(lengths[real]),
                **_rescored(live, part.batch.acted, real, on_policy=part.on_policy),
            }
        )
    return parts


def _by_cotangents(step: Step, part: _Part, scored: Scored) -> Parts:
    objective, plan = step.objective, part.plan
    found = objective.cotangents(scored, plan)
    wanted = {
        name: value
        for name, value in found.scored.tensors().items()
        if name in objective.requires or name.startswith("auxiliary.")
    }
    # A member whose cotangents are all zero (a flat group) adds nothing to the gradient: the model never runs on it.
    moves = torch.stack([(value != 0).any(1) if value.dim() > 1 else value != 0 for value in wanted.values()]).any(0)
    alive = moves.nonzero()[:, 0]
    lengths = plan.acted.mask.sum(1)
    parts: Parts = [{**found.loss.statistics, "scored_share": _share(plan.acted.mask, plan)}]
    for chosen in micro_batches(lengths[alive], step.members_at_once):
        places = alive[chosen]
        cotangents = Scored.from_tensors({name: value[places] for name, value in wanted.items()})
        live = step.domain.backward(part.samples, part.rows[places], cotangents)
        parts.append(
            {
                "padding_share/update": _padding(lengths[places]),
                **_rescored(live, plan.acted, places, on_policy=part.on_policy),
            }
        )
    return parts


def _alive(plan: Plan) -> Tensor:
    """Members that any term gives a gradient to. With the policy term alone, a member of advantage 0 has none."""
    if plan.beta != 0 or plan.entropy != 0 or plan.auxiliary:
        return torch.arange(len(plan), device=plan.acted.mask.device)
    return (plan.acted.mask & (plan.advantage != 0)).any(1).nonzero()[:, 0]


def _scored(step: Step, part: _Part) -> Scored:
    """All fields of the members, without gradient, in micro-batches."""
    samples, rows, requires = part.samples, part.rows, step.objective.requires
    whole: dict[str, Tensor] = {}
    with torch.no_grad():
        for chosen in micro_batches(samples.mask[rows].sum(1), step.members_at_once):
            for name, value in step.domain.score(samples, rows[chosen], requires).tensors().items():
                if name not in whole:
                    whole[name] = value.new_zeros((len(rows), *value.shape[1:]))
                whole[name][chosen] = value
    return Scored.from_tensors(whole or dict.fromkeys(requires, samples.old_log_prob[rows]))


def shown_now(step: Step, number: int = 0) -> Samples | None:
    """The demonstrations beside this optimiser step; `None` where the supervised term has no coefficient."""
    schedule = step.objective.auxiliary.get("supervised")
    if schedule is None or schedule.at(step.state.objective.step) == 0:
        return None
    # Every optimiser step of the run draws others, the one after a stage's start too; the objective's own count begins
    # anew there.
    drawn = step.state.progress.num_attempts + number
    size = step.recipe.train.demonstrations_per_step
    samples = step.domain.demonstrations(size, streams=step.streams, step=drawn)
    assert samples is not None, "checked before the first step"
    return samples


def supervised_gradient(step: Step, samples: Samples) -> Parts:
    """Accumulates the gradient of the supervised term; its sum is divided by its own count over all processes."""
    coefficient = step.objective.auxiliary["supervised"]
    alone = Objective(name="supervised", policy_weight=Constant(value=0.0), auxiliary={"supervised": coefficient})
    share = step.world.share(len(samples))
    rows = torch.arange(share.start, share.stop, device=samples.mask.device)
    counts = samples.auxiliary_count["supervised"]
    plan = alone.plan(_bare_batch(samples, rows, step.state), step.state.objective, step.world.sum)
    parts: Parts = []
    learner = step.state.learner
    for chosen in micro_batches(counts[rows], step.members_at_once):
        if learner.differentiates:
            loss = alone.loss(step.domain.score(samples, rows[chosen], alone.requires), plan.select(chosen))
            if loss.total.requires_grad:
                loss.backward()
        else:
            with torch.no_grad():
                scored = step.domain.score(samples, rows[chosen], alone.requires)
            cotangents = alone.cotangents(scored, plan.select(chosen))
            loss = cotangents.loss
            step.domain.backward(samples, rows[chosen], cotangents.scored)
        parts.append({name: loss.statistics[name] for name in ("loss", "loss_sup")})
    return parts


def _bare_batch(samples: Samples, rows: Tensor, state: TrainState) -> Batch:
    """Demonstrations as the objective sees them: no decision to reinforce, only a count to divide by."""
    mask = torch.zeros_like(samples.mask[rows])
    nothing = torch.zeros(len(rows), 1, dtype=torch.float64, device=mask.device)
    batch = Batch.of(Acted(mask, samples.old_log_prob[rows], member=rows), nothing, state.objective)
    count = {"supervised": samples.auxiliary_count["supervised"][rows]}
    return replace(batch, admitted=torch.zeros_like(batch.admitted), auxiliary_count=count)


def _note_log_ratio(log_ratio: Tensor, rows: Tensor, scored: Scored, update: Batch) -> None:
    log_ratio[rows] = torch.where(update.acted.mask, scored.log_prob.detach() - update.acted.old_log_prob, 0.0).to(
        log_ratio.dtype
    )


def _rescored(live: Scored, acted: Acted, rows: Tensor, *, on_policy: bool) -> dict[str, Statistic]:
    """How far the policy, scored again before its first update, is from what was recorded while it sampled: rounding,
    where they are one policy.
    """
    if not on_policy:
        return {}
    gap = (live.log_prob - acted.old_log_prob[rows]).abs()
    return {"sampling/rescoring_difference/mean": Mean.of(gap, acted.mask[rows])}


def _share(members: Tensor, plan: Plan) -> Mean:
    """The share of the update's members that were scored: what the loss measures is over their decisions."""
    return Mean.ratio(torch.tensor(float(len(members))), torch.tensor(float(len(plan))))


def _padding(lengths: Tensor) -> Mean:
    """The share of places that hold no decision when these members stand side by side."""
    places = lengths.max() * len(lengths) if len(lengths) else lengths.sum()
    return Mean.ratio(places - lengths.sum(), places)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
