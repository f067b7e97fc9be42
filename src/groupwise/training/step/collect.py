"""A batch of rollouts: prompts are drawn, groups are sampled and rewarded, and advantages are prepared. An admission
that resamples repeats this until the batch is full.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeGuard, final

import numpy as np
import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.base import Domain
from groupwise.domain.protocol import ComparesExactly, Matches, Prompt, Samples
from groupwise.domain.returned import checked_members, checked_prompts, checked_rewards, checked_samples
from groupwise.objective import Batch, Objective
from groupwise.objective.matching import NoMatching
from groupwise.processes import is_out_of_memory
from groupwise.records import Rollouts, Scored
from groupwise.reward import RewardError, Rewards, RewardTable
from groupwise.reward.completions import Content
from groupwise.reward.scoring.trainer_arguments import TrainerState
from groupwise.statistics import Correlation, Mean, Quotient, Statistic, Total, add
from groupwise.streams import Streams
from groupwise.training.distributed import World
from groupwise.training.job import Progress, Recipe
from groupwise.training.step.pass_sizes import fit_micro_batch
from groupwise.training.step.state import TrainState
from groupwise.training.step.step import Step, whole_weights

# The prompts of a step: every epoch is a fresh permutation of the training set, which counters alone determine.


def draw_prompts(streams: Streams, num_prompts: int, drawn: int, count: int) -> tuple[list[int], int]:
    """Draws the next `count` prompts.

    Epoch `e` is the permutation keyed by `("prompts", e)`. A draw never crosses an epoch's end: where too few
    prompts of an epoch remain, they are left out (different ones in every epoch), so that no draw has a prompt twice.

    Args:
        streams: the random streams of the run.
        num_prompts: size of the training set.
        drawn: the counter that the last draw returned, 0 at first.
        count: the number of prompts, at most `num_prompts`.

    Returns:
        places in the training set, and the counter for the next draw.

    Example:
        >>> first, drawn = draw_prompts(Streams(0), 5, 0, 2)
        >>> second, drawn = draw_prompts(Streams(0), 5, drawn, 2)
        >>> len({*first, *second}), drawn
        (4, 4)
        >>> third, drawn = draw_prompts(Streams(0), 5, drawn, 2)
        >>> drawn
        7
    """
    assert 0 < count <= num_prompts
    epoch, place = divmod(drawn, num_prompts)
    if place + count > num_prompts:
        epoch, place = epoch + 1, 0
    order = streams.numpy("prompts", epoch).permutation(num_prompts)
    return [int(index) for index in order[place : place + count]], epoch * num_prompts + place + count


# Whether rewards follow the place in the batch at which members were scored.


def place_correlations(groups: Sequence[int], rewards: Sequence[float | None]) -> dict[str, Statistic]:
    """Correlates rewards with places. Prompts come in a random order and the members of a group are drawn alike, so
    that neither a member's place in its group nor that of its group in the batch says anything of a reward that is a
    function of prompt and answer.

    Args:
        groups: of each member, in the order in which the rewards were computed.
        rewards: of each member; members without one are left out.

    Returns:
        `groups/place_correlation`, of a member's reward and its place, both less their group's mean; and
        `batch/place_correlation`, of a group's mean reward and its place in the batch. Nothing where all are equal.

    Example:
        >>> correlations = place_correlations([0, 0, 1, 1], [0.0, 1.0, 2.0, 3.0])
        >>> [round(statistic.finish("value")["value"], 6) for statistic in correlations.values()]
        [1.0, 1.0]
    """
    by_group: defaultdict[int, list[float]] = defaultdict(list)
    for group, reward in zip(groups, rewards, strict=True):
        if reward is not None:
            by_group[group].append(reward)
    values = [torch.tensor(earned, dtype=torch.float64) for earned in by_group.values()]
    if not values:
        return {}
    # A flat group says nothing, and its places would only make the correlation smaller.
    spread = [earned for earned in values if earned.max() > earned.min()]
    means = torch.stack([earned.mean() for earned in values])
    between = Correlation.of(_centred(means), _places(len(means)))
    if not spread:
        return {"batch/place_correlation": between}
    inside = Correlation.of(
        torch.cat([_centred(earned) for earned in spread]), torch.cat([_places(len(earned)) for earned in spread])
    )
    return {"groups/place_correlation": inside, "batch/place_correlation": between}


def _centred(values: Tensor) -> Tensor:
    return values - values.mean()


def _places(count: int) -> Tensor:
    return _centred(torch.arange(count, dtype=torch.float64))


# Rewarded members: all that is known of samples before their advantages are computed.

_MOST_MEMBERS = 1 << 32


@final
@dataclass(frozen=True)
class RewardedMembers:
    """Samples with their rewards, in the order of `samples`.

    Args:
        samples: `B` members.
        place: `[B]`, the place of each member's group in the step.
        table: rewards of the members.
        reward_history: `[B, H]` earlier rewards of the members' prompts, where a run keeps them.
    """

    samples: Samples
    place: Tensor
    table: RewardTable
    reward_history: Tensor | None = None

    def rollouts(self, requires: frozenset[str], *, density: bool) -> Rollouts:
        """Returns the members in the form that the objective reads. A sampler that draws from the full distribution is
        its own behaviour policy.

        Args:
            requires: the fields of `Rollouts` that the objective reads.
            density: true for log-probs of densities, false for those of probabilities.
        """
        samples, table = self.samples, self.table
        behaviour = {"behaviour_log_prob": samples.old_log_prob} if "behaviour_log_prob" in requires else {}
        return Rollouts(
            group=self.place,
            mask=samples.mask,
            old_log_prob=samples.old_log_prob,
            rewards={
                name: _decision_rewards(name, table.maps[name], samples.mask) if name in table.maps else values
                for name, values in table.values.items()
            },
            reward_weights=table.weights,
            truncated=samples.truncated,
            member=member_ids(self.place),
            density=density,
            auxiliary_count=samples.auxiliary_count,
            reward_history=self.reward_history,
            reward_bounds=table.bounds,
            **behaviour | samples.decision_fields(),
        )

    def select(self, rows: Tensor) -> RewardedMembers:
        """Returns the members in `rows`, `[N]`."""
        return RewardedMembers(
            self.samples.select(rows),
            self.place[rows],
            self.table.select(rows.tolist()),
            None if self.reward_history is None else self.reward_history[rows],
        )

    @staticmethod
    def concatenate(parts: Sequence[RewardedMembers]) -> RewardedMembers:
        """Joins the members of several rounds; shorter ones are padded."""
        histories = [part.reward_history for part in parts if part.reward_history is not None]
        return RewardedMembers(
            Samples.concatenate([part.samples for part in parts]),
            torch.cat([part.place for part in parts]),
            RewardTable.concatenate([part.table for part in parts]),
            torch.cat(histories) if histories else None,
        )


def member_ids(place: Tensor) -> Tensor:
    """Returns `[B]` ids that do not depend on the distribution of groups over processes: the group's place in the step,
    then the member's place inside its group.
    """
    order = place.argsort(stable=True)
    ordered = place[order]
    within = torch.arange(len(place), device=place.device) - torch.searchsorted(ordered, ordered)
    return place * _MOST_MEMBERS + torch.empty_like(place).index_copy_(0, order, within)


def _decision_rewards(name: str, values: Sequence[Any], mask: Tensor) -> Tensor:
    """Returns a reward of every decision, `[B, T]`; masked decisions are 0."""
    for member, numbers in enumerate(values):
        if np.size(numbers) != mask.shape[1]:
            raise RewardError(
                f"reward {name!r} gave a map of {list(np.shape(numbers))} numbers for member {member}, which has"
                f" {mask.shape[1]} decisions; write one number a member",
                reward=name,
            )
    return torch.tensor(np.asarray(values), dtype=torch.float64, device=mask.device).reshape(mask.shape)


# Whether equal members of a group earn the same: what part of the differences inside groups is noise of the reward.

_ROUNDING = 1e-5
"""Differences of rewards below this share of their size: rounding in a reward that is computed in batches."""


def copies_noise(
    groups: Sequence[int], contents: Sequence[Content], rewards: Sequence[float | None]
) -> Quotient | None:
    """Compares equal members of a group with all its members: the mean squared difference of rewards over pairs that
    are equal, divided by that over all pairs.

    Groups count that have equal members and whose rewards differ. A reward that is a function of prompt and answer
    gives 0. One that is drawn, or that belongs to other members, gives about 1.

    Args:
        groups: of each member.
        contents: of each member.
        rewards: of each member; members without one are left out.

    Returns:
        the statistic; `None` where no group has two equal members and rewards that differ.

    Example:
        >>> yes, no = Content(1), Content(2)
        >>> copies_noise([0, 0, 0, 0], [yes, yes, no, no], [1.0, 1.0, 0.0, 0.0]).finish("noise")
        {'noise': 0.0}
        >>> copies_noise([0, 0, 0, 0], [yes, yes, no, no], [1.0, 0.0, 1.0, 0.0]).finish("noise")
        {'noise': 1.5}
    """
    members: defaultdict[int, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for group, content, reward in zip(groups, contents, rewards, strict=True):
        if reward is not None:
            members[group][content.digest].append(reward)
    pairs, equal_pairs = [], []
    for by_content in members.values():
        everyone = [reward for copies in by_content.values() for reward in copies]
        spread = max(everyone) - min(everyone)
        if len(by_content) == len(everyone) or not spread > _ROUNDING * max(map(abs, everyone)):
            continue
        pairs.append(_differences(everyone))
        equal_pairs += map(_differences, by_content.values())
    if not pairs:
        return None
    (differences, num_pairs), (equal, num_equal) = map(_sums, (pairs, equal_pairs))
    return Quotient.of(equal, num_equal, differences, num_pairs)


def _differences(rewards: Sequence[float]) -> tuple[float, int]:
    """Returns the sum of squared differences over all pairs, and how many pairs there are."""
    count = len(rewards)
    # Less the first, so that equal numbers give exactly 0.
    moved = [reward - rewards[0] for reward in rewards]
    return count * math.fsum([value * value for value in moved]) - math.fsum(moved) ** 2, count * (count - 1) // 2


def _sums(pairs: Sequence[tuple[float, int]]) -> tuple[float, int]:
    return math.fsum([difference for difference, _ in pairs]), sum(count for _, count in pairs)


# The memory of rewards: values of the training members, gathered from all processes, added once a batch, and saved
# with the run.

GroupComparisons = list[tuple[int, dict[str, list[dict[str, list[float]]]]]]
"""Groups as (place in the step, reward -> its comparisons); a comparison is a table of field -> values of members."""


class HasRewards(Protocol):
    """A domain whose rewards may have a memory (`groupwise.reward.base.Follows`)."""

    rewards: Rewards
    num_prompts: int


def _has_rewards(domain: Any) -> TypeGuard[HasRewards]:
    """Returns whether the attribute `rewards` of a domain is a `Rewards`; in an author's domain it may be something
    else.
    """
    return isinstance(getattr(domain, "rewards", None), Rewards)


def reward_remarks(domain: Domain) -> list[str]:
    """Returns the sentences of a domain's rewards about this machine."""
    return domain.rewards.remarks if _has_rewards(domain) else []


def tell_progress(domain: Domain, progress: Progress, recipe: Recipe) -> None:
    """Tells a domain's rewards where the run stands, which functions are given as `trainer_state`.

    Args:
        domain: of the stage.
        progress: of the run.
        recipe: the stage; `max_steps` is the step at which it ends.
    """
    if _has_rewards(domain):
        domain.rewards.state = TrainerState(
            global_step=progress.step,
            max_steps=progress.step - progress.stage_step + recipe.train.num_steps,
            epoch=progress.num_drawn / max(domain.num_prompts, 1),
        )


def restore_reward_memory(domain: Domain, state: TrainState) -> None:
    """Gives a domain's rewards the memory of the run, so that a batch is rewarded by the batches before it, also after
    a resume or in another stage.
    """
    if _has_rewards(domain):
        domain.rewards.recall(state.reward_memory)


def remember(
    domain: Domain, state: TrainState, rounds: Sequence[tuple[Tensor, RewardTable]], world: World
) -> dict[str, float]:
    """Adds a step's rollouts to the memory of the rewards. Every process goes on with that of the first one, which a
    checkpoint keeps.

    Args:
        state: the state of the run, whose memory is updated.
        rounds: for each round the places of the members' groups, and the rewards.
        world: the processes; every process must call this function.

    Returns:
        the rewards' metrics of themselves, by name.
    """
    if not _has_rewards(domain):
        return {}
    local_groups = [group_entry for place, table in rounds for group_entry in group_comparisons(place, table)]
    groups = sorted(
        (group_entry for process_groups in world.gather(local_groups) for group_entry in process_groups),
        key=lambda group_entry: group_entry[0],
    )
    names = dict.fromkeys(name for _, fields in groups for name in fields)
    metrics = domain.rewards.follow(
        {name: [group for _, fields in groups for group in fields.get(name, [])] for name in names}
    )
    # What a reward makes of the batch may be drawn, or round otherwise on another machine.
    state.reward_memory = world.gather(domain.rewards.memory())[0] if domain.rewards.follows else {}
    # An evaluation may come before the next batch.
    domain.rewards.recall(state.reward_memory)
    return metrics


def group_comparisons(place: Tensor, table: RewardTable) -> GroupComparisons:
    """Returns the fields of a table by group. Where a reward has a value for every decision, the same decision of a
    group's members makes one comparison.

    Args:
        place: `[B]`, the place of each member's group in the step.
        table: rewards, with their fields.

    Example:
        >>> import torch
        >>> table = RewardTable({"vqa": [1.0, 0.0, 1.0]}, fields={"vqa": {"correct": [1.0, 0.0, 1.0]}})
        >>> group_comparisons(torch.tensor([4, 4, 2]), table)
        [(2, {'vqa': [{'correct': [1.0]}]}), (4, {'vqa': [{'correct': [1.0, 0.0]}]})]
    """
    if not table.fields:
        return []
    members: dict[int, list[int]] = {}
    for row, number in enumerate(place.tolist()):
        members.setdefault(number, []).append(row)
    return [
        (number, {name: _comparisons(fields, rows) for name, fields in table.fields.items()})
        for number, rows in sorted(members.items())
    ]


def _comparisons(fields: Mapping[str, Sequence[Any]], rows: Sequence[int]) -> list[dict[str, list[float]]]:
    by_field = {
        field: [value if isinstance(value, list) else [value] for value in (values[row] for row in rows)]
        for field, values in fields.items()
    }
    num_comparisons = max(
        (len(decision_values) for values in by_field.values() for decision_values in values), default=0
    )
    return [
        {
            field: [decision_values[place] for decision_values in values if len(decision_values) > place]
            for field, values in by_field.items()
        }
        for place in range(num_comparisons)
    ]


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
