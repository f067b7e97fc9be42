"""One optimiser step: a plan from global counts, micro-batches of whole members, one summed and clipped gradient, and
one update or none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from groupwise.domain.base import require_gradient
from groupwise.domain.protocol import Samples
from groupwise.domain.returned import checked_demonstrations
from groupwise.learner.local import LocalLearner
from groupwise.learner.protocol import StepNumbers
from groupwise.objective import Batch, Objective, Plan
from groupwise.objective.decisions import Acted
from groupwise.records import Scored
from groupwise.schedule import Constant
from groupwise.statistics import Mean, Statistic, add, finish
from groupwise.training.job import Recipe
from groupwise.training.optimiser_config import OptimiserConfig
from groupwise.training.step.collect import Collected
from groupwise.training.step.pass_sizes import PassStatistics, fit_micro_batch, retrying
from groupwise.training.step.state import TrainState
from groupwise.training.step.step import Step, micro_batches, num_micro_batches

_NOT_FINITE = "log_prob/not_finite"


@final
@dataclass
class Updates:
    """The outcome of the optimiser steps in one step of the loop.

    Args:
        metrics: one dictionary an optimiser step, reduced over processes.
        log_ratio: `[B, T]` nats, of each decision at its last scoring; 0 where all its updates were on-policy.
        taken, skipped, not_finite: numbers of optimiser steps by outcome.
        remarks: sentences for the people who follow the run.
    """

    log_ratio: Tensor
    metrics: list[dict[str, float]] = field(default_factory=list)
    taken: int = 0
    skipped: int = 0
    not_finite: int = 0
    remarks: list[str] = field(default_factory=list)

    def mean(self) -> dict[str, float]:
        """Returns the mean of every metric over the optimiser steps that have it."""
        names = dict.fromkeys(name for step_metrics in self.metrics for name in step_metrics)
        return {
            name: _mean([step_metrics[name] for step_metrics in self.metrics if name in step_metrics]) for name in names
        }


def update_policy(step: Step, collected: Collected | None) -> Updates:
    """Runs all optimiser steps of one step of the loop.

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
    """Returns this process's rows of each minibatch. Groups are dealt by their place in the step, in the same way for
    any number of processes.
    """
    places = sorted(
        {place for process_places in step.world.gather(collected.place.unique().tolist()) for place in process_places}
    )
    minibatches = step.recipe.train.minibatches
    if minibatches == 1:
        return [torch.arange(len(collected.place), device=collected.place.device)]
    order = step.streams.numpy("minibatches", step.state.progress.step, number).permutation(len(places))
    bounds = [round(bucket * len(places) / minibatches) for bucket in range(minibatches + 1)]
    minibatch_rows = []
    for start, end in itertools.pairwise(bounds):
        chosen_places = torch.tensor(
            [places[index] for index in order[start:end]], dtype=collected.place.dtype, device=collected.place.device
        )
        if len(chosen_places):
            minibatch_rows.append(torch.isin(collected.place, chosen_places).nonzero()[:, 0])
    return minibatch_rows


def _optimise(step: Step, collected: Collected | None, rows: Tensor | None, updates: Updates) -> None:
    recipe, state, world = step.recipe, step.state, step.world
    on_policy, learner = updates.taken == 0, state.learner
    learner.zero_gradients()
    accumulate: list[Callable[[], PassStatistics]] = []
    if collected is not None and rows is not None:
        accumulate.append(lambda: policy_gradient(step, collected, rows, updates.log_ratio, on_policy=on_policy))
    if (demonstrations := step_demonstrations(step, len(updates.metrics))) is not None:
        size_remark = fit_micro_batch(
            step, demonstrations, demonstrations.auxiliary_count["supervised"], frozenset({"log_prob"})
        )
        updates.remarks += [size_remark] if size_remark else []
        accumulate.append(lambda: supervised_gradient(step, demonstrations))
    statistics = retrying(step, accumulate, updates.remarks.append)
    learner.reduce_gradients(world)
    pull_loss = (
        state.reference.pull(recipe.train.l2_to_reference) if recipe.train.l2_to_reference and recipe.samples else None
    )
    gradient_norm = learner.step(step_numbers(recipe, state))
    metrics = finish(world.sum_statistics(add(statistics)))
    metrics["grad_norm"] = gradient_norm
    if pull_loss is not None:
        metrics["loss_l2"] = pull_loss
        metrics["loss"] = metrics.get("loss", 0.0) + pull_loss
    num_not_finite = metrics.get(_NOT_FINITE, 0.0)
    if num_not_finite:
        updates.remarks.append(
            f"{num_not_finite:.0f} decisions had a log-prob under the policy that was not finite and were left out"
        )
    # An update in which every decision is left out as not finite has the gradient 0.
    if not math.isfinite(gradient_norm) or (num_not_finite and gradient_norm == 0.0):
        updates.not_finite += 1
        metrics = {_NOT_FINITE: num_not_finite} if num_not_finite else {}
    elif gradient_norm == 0.0:
        # Every group was flat and no other term is active: a step would only apply the optimiser's momentum and decay.
        updates.skipped += 1
    else:
        updates.taken += 1
        if isinstance(learner, LocalLearner) and learner.change is not None:
            metrics["weights/change"] = learner.change
            if learner.stuck is not None:
                metrics["weights/stuck"] = learner.stuck
            if learner.rewritten:
                metrics["weights/rewritten"] = learner.rewritten
        if (average := recipe.train.weight_average) is not None:
            state.progress.average_step += 1
            state.average.mix(1 - average.decay_after(state.progress.average_step))
    state.objective = recipe.objective.observe(state.objective, metrics)
    updates.metrics.append(metrics)


def step_numbers(recipe: Recipe, state: TrainState) -> StepNumbers:
    """Returns the optimiser's numbers at the present step of the stage."""
    config, rate = recipe.optimiser, recipe.optimiser.rate(state.progress.stage_step)
    if not isinstance(config, OptimiserConfig):
        return StepNumbers(learning_rate=rate, max_grad_norm=recipe.train.max_grad_norm)
    return StepNumbers(
        learning_rate=rate,
        beta1=config.beta1,
        beta2=config.beta2,
        eps=config.eps,
        weight_decay=config.weight_decay,
        max_grad_norm=recipe.train.max_grad_norm,
    )


@final
@dataclass(frozen=True)
class _UpdateMembers:
    """The members of one optimiser step on this process.

    Args:
        samples: the members of the whole batch; without any, a filler.
        rows: `[R]`, the places of this step's members in `samples`.
        batch: the prepared members of this step.
        plan: the weights of the update.
        on_policy: true before the first update on the batch.
    """

    samples: Samples
    rows: Tensor
    batch: Batch
    plan: Plan
    on_policy: bool


def policy_gradient(
    step: Step, collected: Collected, rows: Tensor, log_ratio: Tensor, *, on_policy: bool
) -> PassStatistics:
    """Accumulates the gradient of the policy's terms over `rows` and returns their statistics.

    There are two ways to the same gradient. One scores with gradient, micro-batch by micro-batch. The other uses
    cotangents, the loss's gradient by each scored field, computed before the model runs. The fields that the sampler
    recorded allow cotangents in the first update; the scope `batch`, and a learner that does not differentiate in this
    process, require them.
    """
    assert collected.batch is not None
    objective, recorded = step.objective, collected.samples.recorded
    batch = collected.batch.select(rows)
    plan = objective.plan(batch, step.state.objective, step.world.sum, not_finite="counted")
    # Where a process has no member, it joins the passes of the others with one that it does not train on.
    samples = collected.samples if len(collected.samples) else collected.filler
    members = _UpdateMembers(samples, rows, batch, plan, on_policy)
    on_policy_share: PassStatistics = [{"on_policy_share": Mean.number(float(on_policy))}]
    if on_policy and recorded is not None and objective.requires <= set(recorded.tensors()) and not plan.auxiliary:
        return on_policy_share + _by_cotangents(step, members, recorded.select(rows).detach())
    if objective.scope == "batch" or not step.state.learner.differentiates:
        scored = _score_without_gradient(step, members)
        _note_log_ratio(log_ratio, rows, scored, batch)
        return on_policy_share + _by_cotangents(step, members, scored)
    return on_policy_share + _by_loss(step, members, log_ratio)


def _by_loss(step: Step, members: _UpdateMembers, log_ratio: Tensor) -> PassStatistics:
    objective, rows, plan, size = step.objective, members.rows, members.plan, step.members_at_once
    alive = _alive(objective, plan)
    lengths = members.batch.acted.mask.sum(1)
    count = step.world.max(num_micro_batches(len(alive), size))
    statistics: PassStatistics = [{"scored_share": _scored_share(alive, plan)}]
    for chosen in micro_batches(lengths[alive], size, count):
        # Filler repeats this process's first member with weight 0; a process without members runs no pass of its own.
        if len(rows) == 0:
            if not step.sharded:
                break
            _join_scored_pass(step, members.samples, objective.requires)
            continue
        places = torch.where(chosen >= 0, alive[chosen.clamp(min=0)], chosen) if len(alive) else chosen
        scored = step.score(members.samples, rows[places.clamp(min=0)], objective.requires)
        require_gradient(step.domain, scored)
        loss = objective.loss(scored, plan.select(places))
        if loss.total.requires_grad:
            loss.backward()
        elif step.sharded:
            torch.autograd.backward([scored.log_prob], [torch.zeros_like(scored.log_prob)])
        member_places = places[places >= 0]
        scored_members = scored.detach().select(torch.arange(len(member_places), device=rows.device))
        _note_log_ratio(log_ratio, rows[member_places], scored_members, members.batch.select(member_places))
        statistics.append(
            {
                **loss.statistics,
                "padding_share/update": _padding(lengths[member_places]),
                **_rescored(scored_members, members.batch.acted, member_places, on_policy=members.on_policy),
            }
        )
    return statistics


def _by_cotangents(step: Step, members: _UpdateMembers, scored: Scored) -> PassStatistics:
    objective, plan = step.objective, members.plan
    cotangents_of_plan = objective.cotangents(scored, plan)
    required_fields = {
        name: value
        for name, value in cotangents_of_plan.scored.tensors().items()
        if name in objective.requires or name.startswith("auxiliary.")
    }
    # A member whose cotangents are all zero (of a flat group) adds nothing to the gradient, so that the model skips it.
    moves = torch.stack(
        [(value != 0).any(1) if value.dim() > 1 else value != 0 for value in required_fields.values()]
    ).any(0)
    alive = moves.nonzero()[:, 0]
    lengths = plan.acted.mask.sum(1)
    statistics: PassStatistics = [
        {**cotangents_of_plan.loss.statistics, "scored_share": _scored_share(plan.acted.mask, plan)}
    ]
    for chosen in step.passes(lengths[alive]):
        if bool((chosen < 0).any()):
            _join_pass(step, members, requires=frozenset(required_fields))
            continue
        places = alive[chosen]
        cotangents = Scored.from_tensors({name: value[places] for name, value in required_fields.items()})
        scored_members = step.backward(members.samples, members.rows[places], cotangents)
        statistics.append(
            {
                "padding_share/update": _padding(lengths[places]),
                **_rescored(scored_members, plan.acted, places, on_policy=members.on_policy),
            }
        )
    return statistics


def _join_pass(step: Step, members: _UpdateMembers, *, requires: frozenset[str], gradient: bool = True) -> None:
    """Makes a pass that adds nothing, with one member that is at hand: every process has to make the passes of those
    that have more members, where the weights are spread. Those call `backward`, or score without gradient.

    Args:
        requires: names of the fields of the pass.
        gradient: whether the pass of the others has a backward pass.
    """
    samples = members.samples
    first = members.rows[:1] if len(members.rows) else torch.zeros(1, dtype=torch.long, device=samples.mask.device)
    if not gradient:
        with _drawing_nothing(samples):
            step.score(samples, first, requires)
        return
    zeros = torch.zeros_like(samples.old_log_prob[first])
    fields = {name: zeros[:, 0] if name.startswith("auxiliary.") else zeros for name in requires | {"log_prob"}}
    with _drawing_nothing(samples):
        step.backward(samples, first, Scored.from_tensors(fields))


def _alive(objective: Objective, plan: Plan) -> Tensor:
    """Returns the members that get a gradient from any term. With the policy term alone, a member of advantage 0 gets
    none, unless the term pulls back to the policy that sampled.
    """
    if objective.matching.pulls or plan.beta != 0 or plan.entropy != 0 or plan.auxiliary:
        return torch.arange(len(plan), device=plan.acted.mask.device)
    return (plan.acted.mask & (plan.advantage != 0)).any(1).nonzero()[:, 0]


def _score_without_gradient(step: Step, members: _UpdateMembers) -> Scored:
    """Computes all fields of the members in micro-batches, without gradient."""
    samples, rows, requires = members.samples, members.rows, step.objective.requires
    fields: dict[str, Tensor] = {}
    with torch.no_grad():
        for chosen in step.passes(samples.mask[rows].sum(1)):
            if bool((chosen < 0).any()):
                _join_pass(step, members, requires=requires, gradient=False)
                continue
            for name, value in step.score(samples, rows[chosen], requires).tensors().items():
                if name not in fields:
                    fields[name] = value.new_zeros((len(rows), *value.shape[1:]))
                fields[name][chosen] = value
    return Scored.from_tensors(fields or dict.fromkeys(requires, samples.old_log_prob[rows]))


def step_demonstrations(step: Step, number: int = 0) -> Samples | None:
    """Returns the demonstrations of this optimiser step; `None` where the supervised term has no coefficient."""
    schedule = step.objective.auxiliary.get("supervised")
    if schedule is None or schedule.at(step.state.objective.step) == 0:
        return None
    # The key of the draw counts the optimiser steps of the run. The objective's count begins anew with a stage, and
    # would repeat draws.
    draw_key = step.state.progress.num_attempts + number
    size = step.recipe.train.demonstrations_per_step
    samples = step.domain.demonstrations(size, streams=step.streams, step=draw_key)
    return checked_demonstrations(samples)


def supervised_gradient(step: Step, samples: Samples) -> PassStatistics:
    """Accumulates the gradient of the supervised term; the sum is divided by the number of its tokens over all
    processes.
    """
    coefficient = step.objective.auxiliary["supervised"]
    supervised_objective = Objective(
        name="supervised", policy_weight=Constant(value=0.0), auxiliary={"supervised": coefficient}
    )
    share = step.world.share(len(samples))
    rows = torch.arange(share.start, share.stop, device=samples.mask.device)
    counts = samples.auxiliary_count["supervised"]
    plan = supervised_objective.plan(_bare_batch(samples, rows, step.state), step.state.objective, step.world.sum)
    statistics: PassStatistics = []
    learner = step.state.learner
    for chosen in step.passes(counts[rows]):
        if bool((chosen < 0).any()):
            _join_scored_pass(step, samples, supervised_objective.requires)
            continue
        if learner.differentiates:
            loss = supervised_objective.loss(
                step.score(samples, rows[chosen], supervised_objective.requires), plan.select(chosen)
            )
            if loss.total.requires_grad:
                loss.backward()
        else:
            with torch.no_grad():
                scored = step.score(samples, rows[chosen], supervised_objective.requires)
            cotangents = supervised_objective.cotangents(scored, plan.select(chosen))
            loss = cotangents.loss
            step.backward(samples, rows[chosen], cotangents.scored)
        statistics.append({name: loss.statistics[name] for name in ("loss", "loss_sup")})
    return statistics


def _join_scored_pass(step: Step, samples: Samples, requires: frozenset[str]) -> None:
    """Makes a pass that adds nothing, as `_join_pass` does, where the others score with gradient: a domain may cut that
    into passes of its own, and make them in another order than those of its `backward`.

    Args:
        samples: at least one member or demonstration.
        requires: names of the fields of the pass.
    """
    first = torch.zeros(1, dtype=torch.long, device=samples.mask.device)
    with _drawing_nothing(samples):
        fields = [value for value in step.score(samples, first, requires).tensors().values() if value.requires_grad]
        torch.autograd.backward(fields, [torch.zeros_like(value) for value in fields])


def _drawing_nothing(samples: Samples) -> AbstractContextManager[None]:
    """Returns a block that leaves the random numbers of dropout to the passes that count: with whole weights there are
    no others.
    """
    device = samples.mask.device
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def _bare_batch(samples: Samples, rows: Tensor, state: TrainState) -> Batch:
    """Returns demonstrations in the form that the objective reads: without decisions to reinforce, with counts to
    divide by.
    """
    mask = torch.zeros_like(samples.mask[rows])
    zero_advantage = torch.zeros(len(rows), 1, dtype=torch.float64, device=mask.device)
    batch = Batch.of(Acted(mask, samples.old_log_prob[rows], member=rows), zero_advantage, state.objective)
    counts = {"supervised": samples.auxiliary_count["supervised"][rows]}
    return replace(batch, admitted=torch.zeros_like(batch.admitted), auxiliary_count=counts)


def _note_log_ratio(log_ratio: Tensor, rows: Tensor, scored: Scored, update: Batch) -> None:
    log_ratio[rows] = torch.where(update.acted.mask, scored.log_prob.detach() - update.acted.old_log_prob, 0.0).to(
        log_ratio.dtype
    )


def _rescored(scored: Scored, acted: Acted, rows: Tensor, *, on_policy: bool) -> dict[str, Statistic]:
    """Returns how far the policy, scored again before its first update, is from the log-probs recorded while it
    sampled; equal policies differ by rounding only.
    """
    if not on_policy:
        return {}
    gap = (scored.log_prob - acted.old_log_prob[rows]).abs()
    return {"sampling/rescoring_difference/mean": Mean.of(gap, acted.mask[rows])}


def _scored_share(members: Tensor, plan: Plan) -> Mean:
    """Returns the share of the update's members that were scored. The statistics of the loss are over these members."""
    return Mean.ratio(torch.tensor(float(len(members))), torch.tensor(float(len(plan))))


def _padding(lengths: Tensor) -> Mean:
    """Returns the share of places without a decision when these members are padded to one length."""
    places = lengths.max() * len(lengths) if len(lengths) else lengths.sum()
    return Mean.ratio(places - lengths.sum(), places)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
