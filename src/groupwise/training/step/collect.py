"""A batch of rollouts: prompts are drawn, groups are sampled and rewarded, and advantages are prepared. An admission
that resamples repeats this until the batch is full.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.protocol import ComparesExactly, Matches, Prompt, Samples
from groupwise.domain.returned import checked_members, checked_prompts, checked_rewards, checked_samples
from groupwise.objective import Batch, Objective
from groupwise.objective.matching import NoMatching
from groupwise.processes import is_out_of_memory
from groupwise.records import Scored
from groupwise.reward import RewardTable
from groupwise.reward.content import Content
from groupwise.statistics import Mean, Statistic, Total, add
from groupwise.streams import Streams
from groupwise.training.distributed import World
from groupwise.training.step.copies import copies_noise
from groupwise.training.step.draw import draw_prompts
from groupwise.training.step.members import RewardedMembers
from groupwise.training.step.micro_batch_size import fit_micro_batch
from groupwise.training.step.place import place_correlations
from groupwise.training.step.reward_memory import remember, restore_reward_memory, tell_progress
from groupwise.training.step.state import TrainState
from groupwise.training.step.step import Step
from groupwise.training.step.whole_weights import whole_weights


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
    members: RewardedMembers
    batch: Batch
    totals: list[float | None]
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
        batch = rounds[-1].batch
        local_places = rounds[-1].members.place[batch.admitted].unique().tolist()
        num_compared = int((torch.bincount(batch.prompt[batch.sampled]) > 1).sum())
        shares = step.world.gather((local_places, batch.state.running.model_dump(), num_compared))
        _check_running(step.objective, [running for _, running, _ in shares])
        admitted += [place for places, _, _ in shares for place in places]
        if not admission.resamples or len(admitted) >= num_groups:
            break
    statistics = add([_statistics(round_, step.domain.density) for round_ in rounds])
    numbers = {
        "num_rounds": float(len(rounds)),
        "num_prompts_drawn": float(num_drawn),
        "group_size": float(step.group_size),
    }
    for round_ in rounds:
        for name, value in round_.members.samples.numbers.items():
            numbers[f"sampling/{name}"] = numbers.get(f"sampling/{name}", 0.0) + value
    numbers |= _remember(step.state, rounds, step.world) | remember(
        step.domain, step.state, [(round_.members.place, round_.members.table) for round_ in rounds], step.world
    )
    remarks = [round_.size_remark for round_ in rounds if round_.size_remark]
    if admission.resamples:
        chosen_places = sorted(admitted)[:num_groups]
        if len(chosen_places) < num_groups:
            consequence = "the step trains those" if chosen_places else "the step has no policy term"
            remarks.append(
                f"{len(rounds)} rounds of sampling gave {len(chosen_places)} of {num_groups} groups that may train;"
                f" {consequence}"
            )
        members, batch = _select_groups(step, rounds, chosen_places)
    else:
        members, batch = rounds[0].members, rounds[0].batch
        if step.objective.advantage.group_baseline and not any(number for _, _, number in shares):
            batch = replace(batch, admitted=torch.zeros_like(batch.admitted))
            remarks.append(
                "no group has two members with all their rewards: nothing is compared, and the step has no policy term"
            )
    return Collected(
        members.samples, members.place, members.table, batch, statistics, numbers, rounds[0].filler, remarks
    )


def _check_running(objective: Objective, processes: Sequence[Mapping[str, float]]) -> None:
    """Refuses running statistics that an advantage has made of the rewards of one process: later batches are compared
    with them, and a checkpoint keeps those of the first process.
    """
    first, advantage = processes[0], objective.advantage
    for rank, running in enumerate(processes):
        for name, number in running.items():
            both_nan = math.isnan(number) and math.isnan(first[name])
            if not both_nan and not math.isclose(number, first[name], rel_tol=1e-6, abs_tol=1e-12):
                path = getattr(advantage, "path", None)
                called = f"advantage.path = {str(path)!r}" if path else f"advantage.kind = {advantage.kind!r}"
                raise ConfigError(
                    f"{called} has other running statistics on process {rank} than on process 0 ({name} = {number:.6g}"
                    f" and {first[name]:.6g}); sum over processes by rewards.batch_moments(...) or rewards.reduce(...)"
                )


def score_in_parts(
    step: Step, samples: Samples, filler: Samples, requires: frozenset[str] = frozenset({"log_prob"})
) -> dict[str, Tensor]:
    """Computes `[B, T]` fields of all members in micro-batches, without gradient.

    Args:
        step: the step of the stage; every process must call this function.
        samples: `B` members.
        filler: a member that is scored where this process has none left and another has.
        requires: names of the fields.
    """
    fields = {name: torch.zeros_like(samples.old_log_prob) for name in requires}
    with torch.no_grad():
        for rows in step.passes(samples.mask.sum(1)):
            if bool((rows < 0).any()):
                step.score(filler, torch.zeros_like(rows), requires)
            else:
                scored = step.score(samples, rows, requires).tensors()
                for name, values in fields.items():
                    values[rows] = scored[name].to(values.dtype)
    return fields


def _scored_in_shards(step: Step, samples: Samples) -> Samples:
    """Gives members that a server sampled the log-probs, and the other fields, of the weights that are trained."""
    requires = (step.objective.requires_sampled & step.domain.supplies) | {"log_prob"}
    filler = samples.select(torch.zeros(1, dtype=torch.long, device=samples.mask.device))
    recorded = Scored.from_tensors(score_in_parts(step, samples, filler, requires))
    samples = replace(samples, old_log_prob=recorded.log_prob, recorded=recorded)
    step.domain.check_scored(samples)
    return samples


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
    rule, history = train.adaptive_sampling or train.worst_first, state.history
    if rule is None:
        indices, progress.num_drawn = draw_prompts(streams, domain.num_prompts, progress.num_drawn, count)
    else:
        indices, progress.num_drawn = rule.draw(streams, history.rewards, domain.num_prompts, progress.num_drawn, count)
    share = world.share(count)
    # A process without a prompt samples the first prompt, so that its records have the right form, and drops all
    # members.
    asked = [indices[place] for place in share] or indices[:1]
    prompts = checked_prompts(domain.prompts(asked), len(asked))
    # In a small training set a later round may draw a prompt again; the round is part of the key of its draws.
    round_streams = streams if number == 0 else Streams(streams.seed("round", number))
    with progress.timed("sampling"):
        samples = _sampled(step, prompts, round_streams)
    with progress.timed("rewards"):
        restore_reward_memory(domain, state)
        tell_progress(domain, progress, recipe)
        table = checked_rewards(domain.reward(samples), len(samples))
    if not isinstance(matching := objective.matching, NoMatching):
        assert isinstance(domain, Matches), "preflight checks that the domain noises its samples"
        with progress.timed("scoring"), torch.no_grad():
            noised = domain.noised(samples, matching, streams=round_streams, step=progress.step)
            samples = checked_members("noised", noised, samples)
    if recipe.compares:
        assert isinstance(domain, ComparesExactly), "preflight checks that the domain supplies the field or the term"
        with progress.timed("scoring"), state.reference.active(), torch.no_grad():
            samples = checked_members("with_reference", domain.with_reference(samples), samples)
    with progress.timed("update"):
        size_remark = fit_micro_batch(step, samples, samples.mask.sum(1), objective.requires)
    if domain.draws_elsewhere:
        with progress.timed("scoring"):
            samples = _scored_in_shards(step, samples)
    filler = samples.select(torch.zeros(1, dtype=torch.long, device=samples.mask.device))
    if not share:
        samples = samples.select(torch.zeros(0, dtype=torch.long, device=samples.mask.device))
        table = replace(table.select([]), events=())
    place = samples.group + first_place + share.start
    if "reference_log_prob" in objective.requires_rollouts:
        with progress.timed("scoring"), state.reference.active():
            samples = replace(samples, reference_log_prob=score_in_parts(step, samples, filler)["log_prob"])
    member_prompts = [indices[index] for index in (samples.group + share.start).tolist()]
    past_rewards = history.of(member_prompts).to(samples.mask.device) if history.size else None
    members = RewardedMembers(samples, place, table, past_rewards)
    rollouts = members.rollouts(objective.requires_rollouts, density=domain.density)
    batch = objective.prepare(rollouts, state.objective, world.sum)
    totals = table.total(objective.partial_rewards, place.tolist())
    return _Round(filler, members, batch, totals, _earned(member_prompts, totals), size_remark)


def _sampled(step: Step, prompts: Sequence[Prompt], streams: Streams) -> Samples:
    """Samples a group for each prompt; names the remedy where memory runs out."""
    domain, progress = step.domain, step.state.progress
    try:
        with whole_weights(domain, step.world), nullcontext() if domain.keeps_graph else torch.no_grad():
            samples = domain.sample(
                prompts,
                step.group_size,
                streams=streams,
                step=progress.step,
                settings={name: schedule.at(progress.stage_step) for name, schedule in step.recipe.sampling.items()},
                requires=step.recipe.objective.requires_sampled,
            )
        return checked_samples(samples, len(prompts), step.group_size, domain)
    except ConfigError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        message = f"memory ran out while {len(prompts)} groups of {step.group_size} were sampled"
        raise ConfigError(f"{message}; write {domain.memory_remedy}") from error


def _earned(prompts: Sequence[int], totals: Sequence[float | None]) -> list[tuple[int, list[float]]]:
    """Returns the rewards of each prompt's members, in the prompts' order; leaves out members without a reward."""
    rewards_by_prompt: dict[int, list[float]] = {prompt: [] for prompt in prompts}
    for prompt, total in zip(prompts, totals, strict=True):
        if total is not None:
            rewards_by_prompt[prompt].append(total)
    return list(rewards_by_prompt.items())


def _remember(state: TrainState, rounds: Sequence[_Round], world: World) -> dict[str, float]:
    """Adds the rewards of a step to the prompts' histories, on every process alike; returns how far they were above the
    prompts' past.
    """
    total, count = 0.0, 0
    for round_ in rounds:
        earned = [
            prompt_rewards for process_rewards in world.gather(round_.earned) for prompt_rewards in process_rewards
        ]
        state.prompt_values.add(earned)
        if not state.history.size:
            continue
        round_gain, num_compared = state.history.gain(earned)
        total, count = total + round_gain, count + num_compared
        state.history.add(earned)
    metrics = state.prompt_values.metrics()
    if state.history.size:
        metrics["history/num_prompts"] = float(len(state.history.rewards))
    return metrics | ({"history/gain": total / count} if count else {})


def _select_groups(
    step: Step, rounds: Sequence[_Round], chosen_places: Sequence[int]
) -> tuple[RewardedMembers, Batch | None]:
    """Joins the chosen groups of several rounds into one batch, and prepares it. The
    advantages are computed over exactly these groups.
    """
    members = RewardedMembers.concatenate([round_.members for round_ in rounds])
    if not chosen_places:
        return members, None
    chosen = torch.tensor(list(chosen_places), dtype=members.place.dtype, device=members.place.device)
    members = members.select(torch.isin(members.place, chosen).nonzero()[:, 0])
    rollouts = members.rollouts(step.objective.requires_rollouts, density=step.domain.density)
    return members, step.objective.prepare(rollouts, step.state.objective, step.world.sum)


def _statistics(sampled_round: _Round, density: bool) -> dict[str, Statistic]:
    """Returns the statistics of a round's batch and of its samples."""
    samples = sampled_round.members.samples
    lengths = samples.mask.sum(1)
    statistics = dict(sampled_round.batch.statistics)
    statistics["num_decisions"] = Total.of(lengths.sum())
    if not density:
        statistics["surprisal"] = Mean.of(-samples.old_log_prob, samples.mask)
    statistics["padding_share/sampling"] = Mean.share(~samples.mask, torch.ones_like(samples.mask))
    if samples.behaviour_log_prob is not None:
        gap = (samples.old_log_prob - samples.behaviour_log_prob).abs()
        statistics["sampling/sampling_logp_difference/mean"] = Mean.of(gap, samples.mask)
    groups, rewards = sampled_round.members.place.tolist(), sampled_round.totals
    statistics |= _of_contents(groups, sampled_round.members.table.contents, rewards)
    statistics |= place_correlations(groups, rewards)
    for event in sampled_round.members.table.events:
        name = f"rewards/{event.reward}/num_{event.name}"
        count = Total.of(torch.tensor(float(event.count)))
        statistics[name] = statistics[name] + count if name in statistics else count
    for name, values in sampled_round.members.table.logged.items():
        numbers = torch.tensor(values, dtype=torch.float64)
        statistics[f"logged/{name}"] = Mean.of(numbers, torch.ones_like(numbers, dtype=torch.bool))
    return statistics


def _of_contents(
    groups: Sequence[int], contents: Sequence[Content], rewards: Sequence[float | None]
) -> dict[str, Statistic]:
    """Returns the share of members that no earlier member of their group equals, whether equal ones earn the same, and
    how much texts repeat themselves.
    """
    if not contents:
        return {}
    num_distinct = len(set(zip(groups, (content.digest for content in contents), strict=True)))
    statistics: dict[str, Statistic] = {
        "completions/distinct": Mean.ratio(torch.tensor(float(num_distinct)), torch.tensor(float(len(contents))))
    }
    if (noise := copies_noise(groups, contents, rewards)) is not None:
        statistics["groups/copies_noise"] = noise
    repeated = [content.repetition for content in contents if content.repetition is not None]
    if repeated:
        numbers = torch.tensor(repeated, dtype=torch.float64)
        statistics["completions/repetition"] = Mean.of(numbers, torch.ones_like(numbers, dtype=torch.bool))
    return statistics
