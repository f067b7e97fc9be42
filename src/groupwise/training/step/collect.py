"""A batch of rollouts: prompts drawn, groups sampled and rewarded, advantages prepared; drawn again until full where
the admission says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.base import Domain
from groupwise.domain.protocol import ComparesExactly, Samples
from groupwise.objective import Batch
from groupwise.processes import is_out_of_memory
from groupwise.records import Rollouts
from groupwise.reward import RewardTable
from groupwise.statistics import Mean, Statistic, Total, add
from groupwise.streams import Streams
from groupwise.training.distributed import World
from groupwise.training.step.draw import draw_prompts
from groupwise.training.step.fitting import fit_micro_batch
from groupwise.training.step.micro_batches import micro_batches
from groupwise.training.step.reward_memory import recall, remember
from groupwise.training.step.state import TrainState
from groupwise.training.step.step import Step

_MOST_MEMBERS = 1 << 32


@final
@dataclass(frozen=True)
class Collected:
    """One step's rollouts on this process: whole groups.

    Args:
        samples: members; `samples.group` is the place of a member's prompt in `samples.prompts`.
        place: `[B]`, the place of the member's group in the whole step, over all processes.
        table: rewards.
        batch: prepared members; `None` (on all processes) when no group was admitted in any round.
        statistics: what was measured, over everything drawn, to be summed over processes.
        numbers: what is known on every process already.
        remarks: sentences for people.
    """

    samples: Samples
    place: Tensor
    table: RewardTable
    batch: Batch | None
    statistics: dict[str, Statistic]
    numbers: dict[str, float]
    remarks: list[str] = field(default_factory=list)


@final
@dataclass(frozen=True)
class _Round:
    """One time of sampling, this process's share."""

    samples: Samples
    place: Tensor
    table: RewardTable
    reference_log_prob: Tensor | None
    history: Tensor | None
    batch: Batch
    earned: list[tuple[int, list[float]]]
    measured: str


def collect(step: Step) -> Collected:
    """Samples until the batch is full.

    With an admission that resamples, the batch is the first `prompts_per_step` admitted groups in the order they were
    drawn, whatever the number of processes; other admissions keep every group and mark the ones that do not train.

    Args:
        step: of the stage; the counters of drawn prompts in its state go on. Every process must call.

    Returns:
        one step's rollouts; this process's share of them.

    Raises:
        ConfigError: memory ran out while sampling.
    """
    wanted, admission = step.recipe.train.prompts_per_step, step.objective.admission
    rounds: list[_Round] = []
    admitted: list[int] = []
    num_drawn = 0
    for number in range(admission.rounds):
        count = _ask(wanted, len(admitted), num_drawn)
        rounds.append(_round(step, number, num_drawn, count))
        num_drawn += count
        own = rounds[-1].place[rounds[-1].batch.admitted].unique().tolist()
        admitted += [place for places in step.world.gather(own) for place in places]
        if not admission.resamples or len(admitted) >= wanted:
            break
    statistics = add([_measured(each, step.domain.density) for each in rounds])
    numbers = {
        "num_rounds": float(len(rounds)),
        "num_prompts_drawn": float(num_drawn),
        "group_size": float(step.group_size),
    }
    numbers |= _remember(step.state, rounds, step.world) | remember(
        step.domain, step.state, [(each.place, each.table) for each in rounds], step.world
    )
    remarks = [each.measured for each in rounds if each.measured]
    if not admission.resamples:
        only = rounds[0]
        return Collected(only.samples, only.place, only.table, only.batch, statistics, numbers, remarks)
    keep = sorted(admitted)[:wanted]
    if len(keep) < wanted:
        what = "the step trains those" if keep else "the step has no policy term"
        remarks.append(f"{len(rounds)} rounds of sampling gave {len(keep)} of {wanted} groups that may train; {what}")
    return Collected(*_joined(step, rounds, keep), statistics, numbers, remarks)


def score_in_parts(domain: Domain, samples: Samples, requires: frozenset[str], size: int | None) -> Tensor:
    """`[B, T]` log-probs of all members, without gradient, in micro-batches.

    Args:
        domain: the policy and its data.
        samples: members.
        requires: fields to compute.
        size: members in a pass; unset takes all at once.
    """
    result = torch.zeros_like(samples.old_log_prob)
    with torch.no_grad():
        for rows in micro_batches(samples.mask.sum(1), size):
            result[rows] = domain.score(samples, rows, requires).log_prob.to(result.dtype)
    return result


def rollouts_of(
    samples: Samples,
    place: Tensor,
    table: RewardTable,
    reference_log_prob: Tensor | None,
    needs: frozenset[str],
    density: bool,
    reward_history: Tensor | None = None,
) -> Rollouts:
    """The objective's view of sampled members. A sampler that draws from the full distribution is its own behaviour
    policy.

    Args:
        samples: members.
        place: `[B]` the group of each.
        table: their rewards.
        reference_log_prob: `[B, T]`, where the objective reads it.
        needs: what the objective reads of rollouts.
        density: whether log-probs are of densities.
        reward_history: `[B, H]` earlier rewards of the members' prompts.
    """
    behaviour = samples.behaviour_log_prob
    if behaviour is None and "behaviour_log_prob" in needs:
        behaviour = samples.old_log_prob
    return Rollouts(
        group=place,
        mask=samples.mask,
        old_log_prob=samples.old_log_prob,
        rewards={
            name: _map(table.maps[name], samples.mask) if name in table.maps else values
            for name, values in table.values.items()
        },
        reward_weights=table.weights,
        behaviour_log_prob=behaviour,
        reference_log_prob=reference_log_prob,
        step_size=samples.step_size,
        truncated=samples.truncated,
        member=_member_ids(place),
        density=density,
        auxiliary_count=samples.auxiliary_count,
        reward_history=reward_history,
        reward_bounds=table.bounds,
    )


def _map(values: Sequence[Any], mask: Tensor) -> Tensor:
    """A reward of every decision, `[B, T]`; masked decisions are 0."""
    return torch.tensor(np.asarray(values), dtype=torch.float64, device=mask.device).reshape(mask.shape)


def _member_ids(place: Tensor) -> Tensor:
    """`[B]` ids that do not depend on how groups are dealt out: the group's place in the step, then the member's inside
    its group.
    """
    order = place.argsort(stable=True)
    ordered = place[order]
    within = torch.arange(len(place), device=place.device) - torch.searchsorted(ordered, ordered)
    return place * _MOST_MEMBERS + torch.empty_like(place).index_copy_(0, order, within)


def _ask(wanted: int, admitted: int, drawn: int) -> int:
    """How many prompts a round draws: what is missing, over the share admitted so far (taken as a quarter at least)."""
    if drawn == 0:
        return wanted
    return min(wanted, math.ceil((wanted - admitted) / max(admitted / drawn, 0.25)))


def _round(step: Step, number: int, first_place: int, count: int) -> _Round:
    domain, recipe, state, streams, world = step.domain, step.recipe, step.state, step.streams, step.world
    progress, objective, train = state.progress, recipe.objective, recipe.train
    adaptive, past = train.adaptive_sampling, state.history
    if adaptive is None:
        indices, progress.num_drawn = draw_prompts(streams, domain.num_prompts, progress.num_drawn, count)
    else:
        indices, progress.num_drawn = adaptive.draw(
            streams, past.rewards, domain.num_prompts, progress.num_drawn, count
        )
    num_members = step.group_size
    share = world.share(count)
    # A process without a prompt samples one like the others, so that its records have the right form, and keeps no
    # member of it.
    prompts = domain.prompts([indices[place] for place in share] or indices[:1])
    settings = {name: schedule.at(progress.stage_step) for name, schedule in recipe.sampling.items()}
    # A later round may meet a prompt again (a small training set): its draws are keyed apart.
    keyed = streams if number == 0 else Streams(streams.seed("round", number))
    with progress.timed("sampling"):
        try:
            samples = domain.sample(
                prompts, num_members, streams=keyed, step=progress.step, settings=settings, requires=objective.requires
            )
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            message = f"memory ran out while {len(prompts)} groups of {num_members} were sampled"
            raise ConfigError(
                f"{message}; sample fewer at once (for a language model domain.engine.max_members), or shorter"
                " completions"
            ) from error
    with progress.timed("rewards"):
        recall(domain, state)
        table = domain.reward(samples)
    if recipe.compares:
        assert isinstance(domain, ComparesExactly), (
            "it supplies the field or the term, which was checked before the first step"
        )
        with progress.timed("scoring"), state.reference.active():
            samples = domain.with_reference(samples)
    with progress.timed("update"):
        measured = fit_micro_batch(step, samples, samples.mask.sum(1), objective.requires)
    if not share:
        samples, table = samples.select(torch.zeros(0, dtype=torch.long, device=samples.mask.device)), table.select([])
    place = samples.group + first_place + share.start
    reference_log_prob = None
    if "reference_log_prob" in objective.requires_rollouts:
        with progress.timed("scoring"), state.reference.active():
            reference_log_prob = score_in_parts(domain, samples, frozenset({"log_prob"}), step.members_at_once)
    own = [indices[index] for index in (samples.group + share.start).tolist()]
    history = past.of(own).to(samples.mask.device) if past.size else None
    rollouts = rollouts_of(
        samples, place, table, reference_log_prob, objective.requires_rollouts, domain.density, history
    )
    batch = objective.prepare(rollouts, state.objective, world.sum)
    return _Round(
        samples, place, table, reference_log_prob, history, batch, _earned(own, table) if past.size else [], measured
    )


def _earned(prompts: Sequence[int], table: RewardTable) -> list[tuple[int, list[float]]]:
    """What each prompt's members earned, in the prompts' order; members without a reward are left out."""
    found: dict[int, list[float]] = {prompt: [] for prompt in prompts}
    for prompt, total in zip(prompts, table.total(), strict=True):
        if total is not None:
            found[prompt].append(total)
    return list(found.items())


def _remember(state: TrainState, rounds: Sequence[_Round], world: World) -> dict[str, float]:
    """Adds what was earned to the prompts' histories, on every process alike; returns how far it was above
    their past.
    """
    if not state.history.size:
        return {}
    total, count = 0.0, 0
    for each in rounds:
        earned = [item for part in world.gather(each.earned) for item in part]
        gained, known = state.history.gain(earned)
        total, count = total + gained, count + known
        state.history.add(earned)
    return {"history/num_prompts": float(len(state.history.rewards))} | (
        {"history/gain": total / count} if count else {}
    )


def _joined(
    step: Step, rounds: Sequence[_Round], keep: Sequence[int]
) -> tuple[Samples, Tensor, RewardTable, Batch | None]:
    """The kept groups of several rounds as one batch, its advantages taken over exactly these groups: samples, places,
    rewards, batch.
    """
    samples = Samples.concatenate([each.samples for each in rounds])
    place = torch.cat([each.place for each in rounds])
    table = RewardTable.concatenate([each.table for each in rounds])
    rows = torch.isin(place, torch.tensor(list(keep), dtype=place.dtype, device=place.device)).nonzero()[:, 0]
    if not keep:
        return samples, place, table, None
    samples, place, table = samples.select(rows), place[rows], table.select(rows.tolist())
    reference = None
    if rounds[0].reference_log_prob is not None:
        width = samples.mask.shape[1]
        given = [each.reference_log_prob for each in rounds if each.reference_log_prob is not None]
        reference = torch.cat([torch.nn.functional.pad(value, (0, width - value.shape[1])) for value in given])[rows]
    past = [each.history for each in rounds if each.history is not None]
    history = torch.cat(past)[rows] if past else None
    objective = step.objective
    rollouts = rollouts_of(samples, place, table, reference, objective.requires_rollouts, step.domain.density, history)
    return samples, place, table, objective.prepare(rollouts, step.state.objective, step.world.sum)


def _measured(each: _Round, density: bool) -> dict[str, Statistic]:
    """The batch's own statistics and what is counted here."""
    lengths = each.samples.mask.sum(1)
    found = dict(each.batch.statistics)
    found["num_decisions"] = Total.of(lengths.sum())
    if not density:
        found["surprisal"] = Mean.of(-each.samples.old_log_prob, each.samples.mask)
    found["padding_share/sampling"] = Mean.share(~each.samples.mask, torch.ones_like(each.samples.mask))
    if each.samples.behaviour_log_prob is not None:
        gap = (each.samples.old_log_prob - each.samples.behaviour_log_prob).abs()
        found["sampling/sampling_logp_difference/mean"] = Mean.of(gap, each.samples.mask)
    for event in each.table.events:
        name = f"rewards/{event.reward}/num_{event.name}"
        count = Total.of(torch.tensor(float(event.count)))
        found[name] = found[name] + count if name in found else count
    return found
