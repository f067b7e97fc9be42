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

from groupwise.domain.base import Domain
from groupwise.domain.protocol import Samples
from groupwise.objective import Batch, Objective, Plan
from groupwise.objective.acted import Acted
from groupwise.records import Scored
from groupwise.schedule import Constant
from groupwise.statistics import Mean, Statistic, add, finish
from groupwise.streams import Streams
from groupwise.train.collect import Collected
from groupwise.train.distributed import World
from groupwise.train.fitting import Parts, fit_micro_batch, members_at_once, retrying
from groupwise.train.job import Recipe
from groupwise.train.micro_batches import micro_batches, num_micro_batches
from groupwise.train.optimiser import gradient_norm, trained_parameters
from groupwise.train.state import TrainState

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


def update_policy(
    domain: Domain, recipe: Recipe, state: TrainState, collected: Collected | None, streams: Streams, world: World
) -> Updates:
    """All optimiser steps of one step of the loop.

    `updates_per_batch` passes over the rollouts, each in `minibatches` parts of whole groups; without rollouts, one
    step of the auxiliary terms alone.
    """
    updates = Updates(torch.zeros(0) if collected is None else torch.zeros_like(collected.samples.old_log_prob))
    if collected is None or collected.batch is None:
        _step(domain, recipe, state, None, None, updates, streams, world, on_policy=False)
        return updates
    state.objective = collected.batch.state
    for number in range(recipe.train.updates_per_batch):
        for rows in _minibatches(collected, recipe, state, number, streams, world):
            on_policy = updates.taken == 0
            _step(domain, recipe, state, collected, rows, updates, streams, world, on_policy=on_policy)
    return updates


def _minibatches(
    collected: Collected, recipe: Recipe, state: TrainState, number: int, streams: Streams, world: World
) -> list[Tensor]:
    """This process's rows of each minibatch; groups are dealt by their place in the step, the same for any number of
    processes.
    """
    places = sorted({place for part in world.gather(collected.place.unique().tolist()) for place in part})
    if recipe.train.minibatches == 1:
        return [torch.arange(len(collected.place), device=collected.place.device)]
    order = streams.numpy("minibatches", state.progress.step, number).permutation(len(places))
    bounds = [round(part * len(places) / recipe.train.minibatches) for part in range(recipe.train.minibatches + 1)]
    parts = []
    for start, end in itertools.pairwise(bounds):
        chosen = torch.tensor(
            [places[index] for index in order[start:end]], dtype=collected.place.dtype, device=collected.place.device
        )
        if len(chosen):
            parts.append(torch.isin(collected.place, chosen).nonzero()[:, 0])
    return parts


def _step(
    domain: Domain,
    recipe: Recipe,
    state: TrainState,
    collected: Collected | None,
    rows: Tensor | None,
    updates: Updates,
    streams: Streams,
    world: World,
    *,
    on_policy: bool,
) -> None:
    state.optimiser.zero_grad(set_to_none=True)
    accumulate: list[Callable[[], Parts]] = []
    if collected is not None and rows is not None:
        accumulate.append(
            lambda: policy_gradient(
                domain, recipe, state, collected, rows, updates.log_ratio, world, on_policy=on_policy
            )
        )
    if (shown := shown_now(domain, recipe, state, streams, len(updates.metrics))) is not None:
        measured = fit_micro_batch(
            domain, recipe, state, shown, shown.auxiliary_count["supervised"], frozenset({"log_prob"}), world
        )
        updates.remarks += [measured] if measured else []
        accumulate.append(lambda: supervised_gradient(domain, recipe, state, shown, world))
    parts = retrying(accumulate, recipe, state, world, updates.remarks.append)
    parameters = trained_parameters(domain.module)
    world.sum_gradients(parameters)
    pulled = (
        state.reference.pull(recipe.train.l2_to_reference) if recipe.train.l2_to_reference and recipe.samples else None
    )
    norm = gradient_norm(parameters)
    size = float(norm)
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
        if recipe.train.max_grad_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(parameters, recipe.train.max_grad_norm, norm)
        state.optimiser.step()
        updates.taken += 1
        if (average := recipe.train.weight_average) is not None:
            state.progress.average_step += 1
            state.average.mix(1 - average.decay_after(state.progress.average_step))
    state.optimiser.zero_grad(set_to_none=True)
    state.objective = recipe.objective.observe(state.objective, metrics)
    updates.metrics.append(metrics)


def policy_gradient(
    domain: Domain,
    recipe: Recipe,
    state: TrainState,
    collected: Collected,
    rows: Tensor,
    log_ratio: Tensor,
    world: World,
    *,
    on_policy: bool,
) -> Parts:
    """Accumulates the gradient of the policy's terms over `rows` and returns their statistics.

    Two ways to the same gradient. Scored with gradient, micro-batch by micro-batch. Or through cotangents: the loss's
    gradient by each scored field is known before the model runs, which the sampler's own fields allow for the first
    update, and scope `batch` requires.
    """
    assert collected.batch is not None
    objective, size = recipe.objective, members_at_once(recipe, state)
    update, samples = collected.batch.select(rows), collected.samples
    parts: Parts = [{"on_policy_share": Mean.number(float(on_policy))}]
    plan = objective.plan(update, state.objective, world.sum, not_finite="counted")
    recorded = samples.recorded
    if on_policy and recorded is not None and objective.requires <= set(recorded.tensors()) and not plan.auxiliary:
        return parts + _by_cotangents(
            domain, objective, samples, rows, recorded.select(rows).detach(), plan, size, on_policy=on_policy
        )
    if objective.scope == "batch":
        scored = _scored(domain, samples, rows, objective.requires, size)
        _note_log_ratio(log_ratio, rows, scored, update)
        return parts + _by_cotangents(domain, objective, samples, rows, scored, plan, size, on_policy=on_policy)
    return parts + _by_loss(domain, objective, samples, rows, update, plan, log_ratio, size, world, on_policy=on_policy)


def _by_loss(
    domain: Domain,
    objective: Objective,
    samples: Samples,
    rows: Tensor,
    update: Batch,
    plan: Plan,
    log_ratio: Tensor,
    size: int | None,
    world: World,
    *,
    on_policy: bool,
) -> Parts:
    alive = _alive(plan)
    lengths = update.acted.mask.sum(1)
    count = world.max(num_micro_batches(len(alive), size))
    parts: Parts = [{"scored_share": _share(alive, plan)}]
    for chosen in micro_batches(lengths[alive], size, count):
        # Filler repeats this process's first member with weight 0; a process that has no member at all has nothing to
        # repeat.
        if len(rows) == 0:
            break
        places = torch.where(chosen >= 0, alive[chosen.clamp(min=0)], chosen) if len(alive) else chosen
        scored = domain.score(samples, rows[places.clamp(min=0)], objective.requires)
        loss = objective.loss(scored, plan.select(places))
        if loss.total.requires_grad:
            loss.backward()
        real = places[places >= 0]
        live = scored.detach().select(torch.arange(len(real), device=rows.device))
        _note_log_ratio(log_ratio, rows[real], live, update.select(real))
        parts.append(
            {
                **loss.statistics,
                "padding_share/update": _padding(lengths[real]),
                **_rescored(live, update, real, on_policy=on_policy),
            }
        )
    return parts


def _by_cotangents(
    domain: Domain,
    objective: Objective,
    samples: Samples,
    rows: Tensor,
    scored: Scored,
    plan: Plan,
    size: int | None,
    *,
    on_policy: bool,
) -> Parts:
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
    for chosen in micro_batches(lengths[alive], size):
        places = alive[chosen]
        live = domain.backward(
            samples, rows[places], Scored.from_tensors({name: value[places] for name, value in wanted.items()})
        )
        parts.append(
            {"padding_share/update": _padding(lengths[places]), **_rescored(live, plan, places, on_policy=on_policy)}
        )
    return parts


def _alive(plan: Plan) -> Tensor:
    """Members that any term gives a gradient to. With the policy term alone, a member of advantage 0 has none."""
    if plan.beta != 0 or plan.entropy != 0 or plan.auxiliary:
        return torch.arange(len(plan), device=plan.acted.mask.device)
    return (plan.acted.mask & (plan.advantage != 0)).any(1).nonzero()[:, 0]


def _scored(domain: Domain, samples: Samples, rows: Tensor, requires: frozenset[str], size: int | None) -> Scored:
    """All fields of `rows`, without gradient, in micro-batches."""
    whole: dict[str, Tensor] = {}
    with torch.no_grad():
        for chosen in micro_batches(samples.mask[rows].sum(1), size):
            for name, value in domain.score(samples, rows[chosen], requires).tensors().items():
                if name not in whole:
                    whole[name] = value.new_zeros((len(rows), *value.shape[1:]))
                whole[name][chosen] = value
    return Scored.from_tensors(whole or dict.fromkeys(requires, samples.old_log_prob[rows]))


def shown_now(domain: Domain, recipe: Recipe, state: TrainState, streams: Streams, number: int = 0) -> Samples | None:
    """The demonstrations beside this optimiser step; `None` where the supervised term has no coefficient."""
    schedule = recipe.objective.auxiliary.get("supervised")
    if schedule is None or schedule.at(state.objective.step) == 0:
        return None
    # Every optimiser step of the run draws others, the one after a stage's start too; the objective's own count begins
    # anew there.
    step = state.progress.num_attempts + number
    samples = domain.demonstrations(recipe.train.demonstrations_per_step, streams=streams, step=step)
    assert samples is not None, "checked before the first step"
    return samples


def supervised_gradient(domain: Domain, recipe: Recipe, state: TrainState, samples: Samples, world: World) -> Parts:
    """Accumulates the gradient of the supervised term; its sum is divided by its own count over all processes."""
    coefficient = recipe.objective.auxiliary["supervised"]
    alone = Objective(name="supervised", policy_weight=Constant(value=0.0), auxiliary={"supervised": coefficient})
    share = world.share(len(samples))
    rows = torch.arange(share.start, share.stop, device=samples.mask.device)
    counts = samples.auxiliary_count["supervised"]
    plan = alone.plan(_bare_batch(samples, rows, state), state.objective, world.sum)
    parts: Parts = []
    for chosen in micro_batches(counts[rows], members_at_once(recipe, state)):
        loss = alone.loss(domain.score(samples, rows[chosen], alone.requires), plan.select(chosen))
        if loss.total.requires_grad:
            loss.backward()
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


def _rescored(live: Scored, update: Batch | Plan, rows: Tensor, *, on_policy: bool) -> dict[str, Statistic]:
    """How far the policy, scored again before its first update, is from what was recorded while it sampled: rounding,
    where they are one policy.
    """
    if not on_policy:
        return {}
    gap = (live.log_prob - update.acted.old_log_prob[rows]).abs()
    return {"sampling/rescoring_difference/mean": Mean.of(gap, update.acted.mask[rows])}


def _share(members: Tensor, plan: Plan) -> Mean:
    """The share of the update's members that were scored: what the loss measures is over their decisions."""
    return Mean.ratio(torch.tensor(float(len(members))), torch.tensor(float(len(plan))))


def _padding(lengths: Tensor) -> Mean:
    """The share of places that hold no decision when these members stand side by side."""
    places = lengths.max() * len(lengths) if len(lengths) else lengths.sum()
    return Mean.ratio(places - lengths.sum(), places)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
