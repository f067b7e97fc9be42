"""A batch of rollouts: prompts are drawn, groups are sampled and rewarded, and advantages are prepared. An admission
that resamples repeats this until the batch is full.
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
from groupwise.domain.protocol import ComparesExactly, Matches, Samples
from groupwise.objective import Batch
from groupwise.objective.matching import NoMatching
from groupwise.processes import is_out_of_memory
from groupwise.records import Rollouts
from groupwise.reward import RewardTable
from groupwise.statistics import Mean, Statistic, Total, add
from groupwise.streams import Streams
from groupwise.training.distributed import World
from groupwise.training.step.draw import draw_prompts
from groupwise.training.step.micro_batch_size import fit_micro_batch
from groupwise.training.step.reward_memory import remember, restore_reward_memory, tell_progress
from groupwise.training.step.state import TrainState
from groupwise.training.step.step import Step

_MOST_MEMBERS = 1 << 32


@final
@dataclass(frozen=True)
class Collected:
    """The rollouts of one step on this process, in whole groups.

    Args:
        samples: the members; `samples.group` has the place of a member's prompt in `samples.prompts`.
        place: `[B]`, the place of the member's group in the whole step, over all processes.
        table: rewards of the members.
        batch: prepared members; `None` (on all processes) when no group was admitted in any round.
        statistics: statistics of all rounds on this process, to be summed over processes.
        numbers: metrics that have the same value on every process.
        filler: a member of this process that stands in where it has none to train on.
        remarks: sentences for the people who follow the run.
    """

    samples: Samples
    place: Tensor
    table: RewardTable
    batch: Batch | None
    statistics: dict[str, Statistic]
    numbers: dict[str, float]
    filler: Samples
    remarks: list[str] = field(default_factory=list)


@final
@dataclass(frozen=True)
class _Round:
    """The members of one round of sampling on this process."""

    filler: Samples
    samples: Samples
    place: Tensor
    table: RewardTable
    reference_log_prob: Tensor | None
    history: Tensor | None
    batch: Batch
    earned: list[tuple[int, list[float]]]
    size_remark: str


def collect(step: Step) -> Collected:
    """Samples until the batch is full.

    With an admission that resamples, the batch is the first `prompts_per_step` admitted groups in the order they were
    drawn, whatever the number of processes; other admissions keep every group and mark the ones that do not train.

    Args:
        step: the step of the stage; advances the counters of drawn prompts in its state. Every process must call this
            function.

    Returns:
        this process's share of the rollouts.

    Raises:
        ConfigError: memory ran out while sampling.
    """
    num_groups, admission = step.recipe.train.prompts_per_step, step.objective.admission
    rounds: list[_Round] = []
    admitted: list[int] = []
    num_drawn = 0
    for number in range(admission.rounds):
        num_prompts = _num_prompts_to_draw(num_groups, len(admitted), num_drawn)
        rounds.append(_round(step, number, num_drawn, num_prompts))
        num_drawn += num_prompts
        local_places = rounds[-1].place[rounds[-1].batch.admitted].unique().tolist()
        admitted += [place for places in step.world.gather(local_places) for place in places]
        if not admission.resamples or len(admitted) >= num_groups:
            break
    statistics = add([_statistics(round_, step.domain.density) for round_ in rounds])
    numbers = {
        "num_rounds": float(len(rounds)),
        "num_prompts_drawn": float(num_drawn),
        "group_size": float(step.group_size),
    }
    for round_ in rounds:
        for name, value in round_.samples.numbers.items():
            numbers[f"sampling/{name}"] = numbers.get(f"sampling/{name}", 0.0) + value
    numbers |= _remember(step.state, rounds, step.world) | remember(
        step.domain, step.state, [(round_.place, round_.table) for round_ in rounds], step.world
    )
    remarks = [round_.size_remark for round_ in rounds if round_.size_remark]
    if not admission.resamples:
        batch_round = rounds[0]
        return Collected(
            batch_round.samples,
            batch_round.place,
            batch_round.table,
            batch_round.batch,
            statistics,
            numbers,
            batch_round.filler,
            remarks,
        )
    chosen_places = sorted(admitted)[:num_groups]
    if len(chosen_places) < num_groups:
        consequence = "the step trains those" if chosen_places else "the step has no policy term"
        remarks.append(
            f"{len(rounds)} rounds of sampling gave {len(chosen_places)} of {num_groups} groups that may train;"
            f" {consequence}"
        )
    return Collected(*_select_groups(step, rounds, chosen_places), statistics, numbers, rounds[0].filler, remarks)


def score_in_parts(step: Step, samples: Samples, filler: Samples) -> Tensor:
    """Computes `[B, T]` log-probs of all members in micro-batches, without gradient.

    Args:
        step: the step of the stage; every process must call this function.
        samples: `B` members.
        filler: a member that is scored where this process has none left and another has.
    """
    log_prob, requires = torch.zeros_like(samples.old_log_prob), frozenset({"log_prob"})
    with torch.no_grad():
        for rows in step.passes(samples.mask.sum(1)):
            if bool((rows < 0).any()):
                step.domain.score(filler, torch.zeros_like(rows), requires)
            else:
                log_prob[rows] = step.domain.score(samples, rows, requires).log_prob.to(log_prob.dtype)
    return log_prob


def rollouts_of(
    samples: Samples,
    place: Tensor,
    table: RewardTable,
    reference_log_prob: Tensor | None,
    needs: frozenset[str],
    density: bool,
    reward_history: Tensor | None = None,
) -> Rollouts:
    """Returns the rollouts in the form that the objective reads. A sampler that draws from the full distribution is its
    own behaviour policy.

    Args:
        samples: `B` members.
        place: `[B]`, the place of each member's group in the step.
        table: rewards of the members.
        reference_log_prob: `[B, T]` in nats, where the objective reads it.
        needs: the fields that the objective reads.
        density: true for log-probs of densities, false for those of probabilities.
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
            name: _decision_rewards(table.maps[name], samples.mask) if name in table.maps else values
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


def _decision_rewards(values: Sequence[Any], mask: Tensor) -> Tensor:
    """Returns a reward of every decision, `[B, T]`; masked decisions are 0."""
    return torch.tensor(np.asarray(values), dtype=torch.float64, device=mask.device).reshape(mask.shape)


def _member_ids(place: Tensor) -> Tensor:
    """Returns `[B]` ids that do not depend on the distribution of groups over processes: the group's place in the step,
    then the member's place inside its group.
    """
    order = place.argsort(stable=True)
    ordered = place[order]
    within = torch.arange(len(place), device=place.device) - torch.searchsorted(ordered, ordered)
    return place * _MOST_MEMBERS + torch.empty_like(place).index_copy_(0, order, within)


def _num_prompts_to_draw(num_groups: int, admitted: int, drawn: int) -> int:
    """Returns the number of prompts that a round draws: the missing groups divided by the share admitted so far, which
    counts as a quarter at least.
    """
    if drawn == 0:
        return num_groups
    return min(num_groups, math.ceil((num_groups - admitted) / max(admitted / drawn, 0.25)))


def _round(step: Step, number: int, first_place: int, count: int) -> _Round:
    domain, recipe, state, streams, world = step.domain, step.recipe, step.state, step.streams, step.world
    progress, objective, train = state.progress, recipe.objective, recipe.train
    adaptive, history = train.adaptive_sampling, state.history
    if adaptive is None:
        indices, progress.num_drawn = draw_prompts(streams, domain.num_prompts, progress.num_drawn, count)
    else:
        indices, progress.num_drawn = adaptive.draw(
            streams, history.rewards, domain.num_prompts, progress.num_drawn, count
        )
    num_members = step.group_size
    share = world.share(count)
    # A process without a prompt samples the first prompt, so that its records have the right form, and drops all
    # members.
    prompts = domain.prompts([indices[place] for place in share] or indices[:1])
    settings = {name: schedule.at(progress.stage_step) for name, schedule in recipe.sampling.items()}
    # In a small training set a later round may draw a prompt again; the round is part of the key of its draws.
    round_streams = streams if number == 0 else Streams(streams.seed("round", number))
    with progress.timed("sampling"):
        try:
            with state.learner.gathered():
                samples = domain.sample(
                    prompts,
                    num_members,
                    streams=round_streams,
                    step=progress.step,
                    settings=settings,
                    requires=objective.requires_sampled,
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
        restore_reward_memory(domain, state)
        tell_progress(domain, progress, recipe)
        table = domain.reward(samples)
    if not isinstance(matching := objective.matching, NoMatching):
        assert isinstance(domain, Matches), "preflight checks that the domain noises its samples"
        with progress.timed("scoring"):
            samples = domain.noised(samples, matching, streams=round_streams, step=progress.step)
    if recipe.compares:
        assert isinstance(domain, ComparesExactly), "preflight checks that the domain supplies the field or the term"
        with progress.timed("scoring"), state.reference.active():
            samples = domain.with_reference(samples)
    with progress.timed("update"):
        size_remark = fit_micro_batch(step, samples, samples.mask.sum(1), objective.requires)
    filler = samples.select(torch.zeros(1, dtype=torch.long, device=samples.mask.device))
    if not share:
        samples, table = samples.select(torch.zeros(0, dtype=torch.long, device=samples.mask.device)), table.select([])
    place = samples.group + first_place + share.start
    reference_log_prob = None
    if "reference_log_prob" in objective.requires_rollouts:
        with progress.timed("scoring"), state.reference.active():
            reference_log_prob = score_in_parts(step, samples, filler)
    member_prompts = [indices[index] for index in (samples.group + share.start).tolist()]
    past_rewards = history.of(member_prompts).to(samples.mask.device) if history.size else None
    rollouts = rollouts_of(
        samples, place, table, reference_log_prob, objective.requires_rollouts, domain.density, past_rewards
    )
    batch = objective.prepare(rollouts, state.objective, world.sum)
    return _Round(
        filler,
        samples,
        place,
        table,
        reference_log_prob,
        past_rewards,
        batch,
        _earned(member_prompts, table) if history.size else [],
        size_remark,
    )


def _earned(prompts: Sequence[int], table: RewardTable) -> list[tuple[int, list[float]]]:
    """Returns the rewards of each prompt's members, in the prompts' order; leaves out members without a reward."""
    rewards_by_prompt: dict[int, list[float]] = {prompt: [] for prompt in prompts}
    for prompt, total in zip(prompts, table.total(), strict=True):
        if total is not None:
            rewards_by_prompt[prompt].append(total)
    return list(rewards_by_prompt.items())


def _remember(state: TrainState, rounds: Sequence[_Round], world: World) -> dict[str, float]:
    """Adds the rewards of a step to the prompts' histories, on every process alike; returns how far they were above the
    prompts' past.
    """
    if not state.history.size:
        return {}
    total, count = 0.0, 0
    for round_ in rounds:
        earned = [
            prompt_rewards for process_rewards in world.gather(round_.earned) for prompt_rewards in process_rewards
        ]
        round_gain, num_compared = state.history.gain(earned)
        total, count = total + round_gain, count + num_compared
        state.history.add(earned)
    return {"history/num_prompts": float(len(state.history.rewards))} | (
        {"history/gain": total / count} if count else {}
    )


def _select_groups(
    step: Step, rounds: Sequence[_Round], chosen_places: Sequence[int]
) -> tuple[Samples, Tensor, RewardTable, Batch | None]:
    """Joins the chosen groups of several rounds into one batch: samples, places, rewards and prepared members. The
    advantages are computed over exactly these groups.
    """
    samples = Samples.concatenate([round_.samples for round_ in rounds])
    place = torch.cat([round_.place for round_ in rounds])
    table = RewardTable.concatenate([round_.table for round_ in rounds])
    rows = torch.isin(place, torch.tensor(list(chosen_places), dtype=place.dtype, device=place.device)).nonzero()[:, 0]
    if not chosen_places:
        return samples, place, table, None
    samples, place, table = samples.select(rows), place[rows], table.select(rows.tolist())
    reference_log_prob = None
    if rounds[0].reference_log_prob is not None:
        width = samples.mask.shape[1]
        reference_log_probs = [round_.reference_log_prob for round_ in rounds if round_.reference_log_prob is not None]
        reference_log_prob = torch.cat(
            [torch.nn.functional.pad(log_prob, (0, width - log_prob.shape[1])) for log_prob in reference_log_probs]
        )[rows]
    past_rewards = [round_.history for round_ in rounds if round_.history is not None]
    history = torch.cat(past_rewards)[rows] if past_rewards else None
    objective = step.objective
    rollouts = rollouts_of(
        samples, place, table, reference_log_prob, objective.requires_rollouts, step.domain.density, history
    )
    return samples, place, table, objective.prepare(rollouts, step.state.objective, step.world.sum)


def _statistics(sampled_round: _Round, density: bool) -> dict[str, Statistic]:
    """Returns the statistics of a round's batch and of its samples."""
    lengths = sampled_round.samples.mask.sum(1)
    statistics = dict(sampled_round.batch.statistics)
    statistics["num_decisions"] = Total.of(lengths.sum())
    if not density:
        statistics["surprisal"] = Mean.of(-sampled_round.samples.old_log_prob, sampled_round.samples.mask)
    statistics["padding_share/sampling"] = Mean.share(
        ~sampled_round.samples.mask, torch.ones_like(sampled_round.samples.mask)
    )
    if sampled_round.samples.behaviour_log_prob is not None:
        gap = (sampled_round.samples.old_log_prob - sampled_round.samples.behaviour_log_prob).abs()
        statistics["sampling/sampling_logp_difference/mean"] = Mean.of(gap, sampled_round.samples.mask)
    for event in sampled_round.table.events:
        name = f"rewards/{event.reward}/num_{event.name}"
        count = Total.of(torch.tensor(float(event.count)))
        statistics[name] = statistics[name] + count if name in statistics else count
    for name, values in sampled_round.table.logged.items():
        numbers = torch.tensor(values, dtype=torch.float64)
        statistics[f"logged/{name}"] = Mean.of(numbers, torch.ones_like(numbers, dtype=torch.bool))
    return statistics
