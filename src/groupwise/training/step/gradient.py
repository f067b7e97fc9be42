"""Gradients that do not come from the loss of a micro-batch: by cotangents, of demonstrations, and passes that add
nothing.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from groupwise.domain.protocol import Samples
from groupwise.domain.returned import checked_demonstrations
from groupwise.objective import Batch, Objective, Plan
from groupwise.objective.decisions import Acted
from groupwise.records import Scored
from groupwise.schedule import Constant
from groupwise.statistics import Mean, Statistic
from groupwise.training.step.pass_sizes import PassStatistics
from groupwise.training.step.state import Step


def score_without_gradient(step: Step, samples: Samples, rows: Tensor, requires: frozenset[str]) -> Scored:
    """Scores members pass by pass, without gradient; every process must call this function.

    Args:
        samples: at least one member.
        rows: `[R]`, the members to score; may be empty.
        requires: names of the fields.
    """
    fields: dict[str, Tensor] = {}
    with torch.no_grad():
        for chosen in step.passes(samples.mask[rows].sum(1)):
            if chosen is None:
                join_pass(step, samples, requires)
                continue
            for name, value in step.score(samples, rows[chosen], requires).tensors().items():
                if name not in fields:
                    fields[name] = value.new_zeros((len(rows), *value.shape[1:]))
                fields[name][chosen] = value
    return Scored.from_tensors(fields or dict.fromkeys(requires, samples.old_log_prob[rows]))


def by_cotangents(
    step: Step, samples: Samples, rows: Tensor, plan: Plan, scored: Scored, *, on_policy: bool
) -> PassStatistics:
    """Accumulates the policy's gradient by cotangents, the loss's gradient by each scored field, which are computed
    before the model runs. The learner may differentiate elsewhere.

    Args:
        samples: the members of the step.
        rows: `[R]`, the places of the update's members.
        plan: the weights of these members.
        scored: their fields under the live policy, without gradient.
        on_policy: whether this is the first update on the batch.
    """
    objective = step.objective
    cotangents = objective.cotangents(scored, plan)
    fields = {
        name: value
        for name, value in cotangents.scored.tensors().items()
        if name in objective.requires or name.startswith("auxiliary.")
    }
    # A member whose cotangents are all zero (of a flat group) adds nothing to the gradient, so that the model skips it.
    moves = torch.stack([(value != 0).any(1) if value.dim() > 1 else value != 0 for value in fields.values()])
    alive = moves.any(0).nonzero()[:, 0]
    lengths = plan.acted.mask.sum(1)
    statistics: PassStatistics = [{**cotangents.loss.statistics, "scored_share": scored_share(len(rows), len(rows))}]
    for chosen in step.passes(lengths[alive]):
        if chosen is None:
            join_pass(step, samples, frozenset(fields), backward=True)
            continue
        places = alive[chosen]
        of_pass = Scored.from_tensors({name: value[places] for name, value in fields.items()})
        scored_again = step.backward(samples, rows[places], of_pass)
        statistics.append(pass_statistics(scored_again, plan.acted, places, lengths[places], on_policy=on_policy))
    return statistics


def join_pass(step: Step, samples: Samples, requires: frozenset[str], *, backward: bool = False) -> None:
    """Makes a pass that adds nothing, with one member that is at hand: where the weights are spread, every process has
    to make the passes of those that have more members. Dropout draws nothing for it.

    Args:
        samples: at least one member or demonstration.
        requires: names of the fields of the pass.
        backward: whether the others call `backward`. A domain may cut it into passes of its own, and make them in
            another order than those of `score`, which the others call otherwise.
    """
    device = samples.mask.device
    first = torch.zeros(1, dtype=torch.long, device=device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if backward:
            zeros = torch.zeros_like(samples.old_log_prob[first])
            fields = {name: zeros[:, 0] if name.startswith("auxiliary.") else zeros for name in requires | {"log_prob"}}
            step.backward(samples, first, Scored.from_tensors(fields))
            return
        scored = [value for value in step.score(samples, first, requires).tensors().values() if value.requires_grad]
        if scored:
            torch.autograd.backward(scored, [torch.zeros_like(value) for value in scored])


def step_demonstrations(step: Step, number: int = 0) -> Samples | None:
    """Returns the demonstrations of this optimiser step; `None` where the supervised term has no coefficient."""
    schedule = step.objective.auxiliary.get("supervised")
    if schedule is None or schedule.at(step.state.objective.step) == 0:
        return None
    # The key of the draw counts the optimiser steps of the run. The objective's count begins anew with a stage, and
    # would repeat draws.
    draw_key = step.state.progress.num_attempts + number
    size = step.recipe.train.demonstrations_per_step
    return checked_demonstrations(step.domain.demonstrations(size, streams=step.streams, step=draw_key))


def supervised_gradient(step: Step, samples: Samples) -> PassStatistics:
    """Accumulates the gradient of the supervised term; the sum is divided by the number of its tokens over all
    processes.
    """
    objective = Objective(
        name="supervised",
        policy_weight=Constant(value=0.0),
        auxiliary={"supervised": step.objective.auxiliary["supervised"]},
    )
    share = step.world.share(len(samples))
    rows = torch.arange(share.start, share.stop, device=samples.mask.device)
    counts = samples.auxiliary_count["supervised"][rows]
    # Demonstrations have no decisions to reinforce, only counts to divide by.
    acted = Acted(torch.zeros_like(samples.mask[rows]), samples.old_log_prob[rows], member=rows)
    no_advantage = torch.zeros(len(rows), 1, dtype=torch.float64, device=rows.device)
    batch = Batch.of(acted, no_advantage, step.state.objective)
    batch = replace(batch, admitted=torch.zeros_like(batch.admitted), auxiliary_count={"supervised": counts})
    plan = objective.plan(batch, step.state.objective, step.world.sum)
    statistics: PassStatistics = []
    for chosen in step.passes(counts):
        if chosen is None:
            join_pass(step, samples, objective.requires)
            continue
        if step.state.learner.differentiates:
            loss = objective.loss(step.score(samples, rows[chosen], objective.requires), plan.select(chosen))
            if loss.total.requires_grad:
                loss.backward()
        else:
            with torch.no_grad():
                scored = step.score(samples, rows[chosen], objective.requires)
            cotangents = objective.cotangents(scored, plan.select(chosen))
            loss = cotangents.loss
            step.backward(samples, rows[chosen], cotangents.scored)
        statistics.append({name: loss.statistics[name] for name in ("loss", "loss_sup")})
    return statistics


def scored_share(num_scored: int, num_members: int) -> Mean:
    """Returns the share of the update's members that were scored. The statistics of the loss are over these members."""
    return Mean.ratio(torch.tensor(float(num_scored)), torch.tensor(float(num_members)))


def pass_statistics(
    scored: Scored, acted: Acted, places: Tensor, lengths: Tensor, *, on_policy: bool
) -> dict[str, Statistic]:
    """Returns the padding of a pass and, before the first update, how far the policy is from the log-probs recorded
    while it sampled; equal policies differ by rounding only.

    Args:
        scored: the fields of the pass.
        acted: the decisions of the update's members.
        places: the members of the pass among them.
        lengths: decisions of each member of the pass.
        on_policy: whether this is the first update on the batch.
    """
    size = lengths.max() * len(lengths) if len(lengths) else lengths.sum()
    statistics: dict[str, Statistic] = {"padding_share/update": Mean.ratio(size - lengths.sum(), size)}
    if on_policy:
        gap = (scored.log_prob - acted.old_log_prob[places]).abs()
        statistics["sampling/rescoring_difference/mean"] = Mean.of(gap, acted.mask[places])
    return statistics
