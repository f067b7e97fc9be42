"""The members of a step: sampled in rounds, compared with the reference, joined into a batch; and the statistics of a
round.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import torch

from groupwise.config import ConfigError
from groupwise.domain.protocol import ComparesExactly, Matches, Prompt, Samples
from groupwise.memory import running_out
from groupwise.objective import Batch, Objective
from groupwise.objective.matching import NoMatching
from groupwise.records import Scored
from groupwise.reward.completions import Content
from groupwise.statistics import Correlation, Mean, Quotient, Statistic, Total
from groupwise.streams import Streams
from groupwise.training.step.passes import score_without_gradient
from groupwise.training.step.state import Earned, Step, whole_weights
from groupwise.transfer import moved


def round_statistics(
    samples: Samples, batch: Batch, totals: Sequence[float | None], *, density: bool
) -> dict[str, Statistic]:
    """Returns the statistics of sampled and rewarded members.

    Args:
        batch: the members, compared.
        totals: the weighted sum of each member's rewards.
        density: whether log-probs are of densities, whose surprisal means nothing.
    """
    table, groups = samples.rewards, samples.place.tolist()
    statistics = dict(batch.statistics)
    statistics["num_decisions"] = Total.of(samples.mask.sum())
    if not density:
        statistics["surprisal"] = Mean.of(-samples.old_log_prob, samples.mask)
    statistics["padding_share/sampling"] = Mean.share(~samples.mask, torch.ones_like(samples.mask))
    if samples.behaviour_log_prob is not None:
        gap = (samples.old_log_prob - samples.behaviour_log_prob).abs()
        statistics["sampling/sampling_logp_difference/mean"] = Mean.of(gap, samples.mask)
    if table.contents:
        num_distinct = len(set(zip(groups, (content.digest for content in table.contents), strict=True)))
        statistics["completions/distinct"] = Mean.ratio(num_distinct, len(table.contents))
        if (noise := copies_noise(groups, table.contents, totals)) is not None:
            statistics["groups/copies_noise"] = noise
    statistics |= place_correlations(groups, totals)
    for event in table.events:
        name = f"rewards/{event.reward}/num_{event.name}"
        count = Total.of(torch.tensor(float(event.count)))
        statistics[name] = statistics[name] + count if name in statistics else count
    averaged = {f"logged/{name}": values for name, values in table.logged.items()}
    averaged["completions/repetition"] = [c.repetition for c in table.contents if c.repetition is not None]
    for name, values in averaged.items():
        if values:
            numbers = torch.tensor(values, dtype=torch.float64)
            statistics[name] = Mean.of(numbers, torch.ones_like(numbers, dtype=torch.bool))
    return statistics


def place_correlations(groups: Sequence[int], rewards: Sequence[float | None]) -> dict[str, Statistic]:
    """Correlates rewards with places. Prompts come in a random order and the members of a group are drawn alike, so
    that neither a member's place in its group nor that of its group in the batch says anything of a reward that is a
    function of prompt and answer.

    Args:
        groups: the group of each member, in the order in which the rewards were computed.
        rewards: the reward of each member; members without one are left out.

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
    # Each group's rewards and places, both less their mean.
    values = [torch.tensor(earned, dtype=torch.float64) for earned in by_group.values()]
    if not values:
        return {}
    means = torch.stack([earned.mean() for earned in values])
    places = torch.arange(len(means), dtype=torch.float64)
    between = Correlation.of(means - means.mean(), places - places.mean())
    # A flat group says nothing, and its places would only make the correlation smaller.
    spread = [earned for earned in values if earned.max() > earned.min()]
    if not spread:
        return {"batch/place_correlation": between}
    orders = [torch.arange(len(earned), dtype=torch.float64) for earned in spread]
    inside = Correlation.of(
        torch.cat([earned - earned.mean() for earned in spread]), torch.cat([order - order.mean() for order in orders])
    )
    return {"groups/place_correlation": inside, "batch/place_correlation": between}


_ROUNDING = 1e-5
"""Differences of rewards below this share of their size count as rounding, as in a reward that is computed in
batches.
"""


def copies_noise(
    groups: Sequence[int], contents: Sequence[Content], rewards: Sequence[float | None]
) -> Quotient | None:
    """Compares equal members of a group with all its members: the mean squared difference of rewards over pairs that
    are equal, divided by that over all pairs.

    Groups count that have equal members and whose rewards differ. A reward that is a function of prompt and answer
    gives 0. One that is drawn, or that belongs to other members, gives about 1.

    Args:
        groups: the group of each member.
        contents: the content of each member.
        rewards: the reward of each member; members without one are left out.

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


@dataclass(frozen=True)
class Collected:
    """The rollouts of a round, or of a whole step, on this process: whole groups with their rewards.

    Args:
        samples: the members.
        batch: the same members, compared; on the CPU until the step's rounds are joined; `None` (on all processes)
            when no group was admitted in any round.
        filler: members that this process sampled, one of which is used where it has none to train on.
        earned: the rewards of each group with its prompt; of a whole step, those of all processes.
        statistics: to be summed over processes.
        places: the place of each member's group in the step.
        numbers: metrics that have the same value on every process.
        remarks: sentences for the people who follow the run.
    """

    samples: Samples
    batch: Batch | None
    filler: Samples
    earned: Earned
    statistics: dict[str, Statistic]
    places: list[int] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def on_cpu(samples: Samples) -> Samples:
    """Returns what the comparison reads of the members, on the CPU: rewards come from there, and a comparison on the
    device would wait for each of its checks.
    """
    return moved(replace(samples, recorded=None, payload={}))


def compared(step: Step, samples: Samples) -> Batch:
    """Compares members that lie on the CPU."""
    recorded = samples.rollouts(step.objective.requires_rollouts, density=step.domain.density)
    return step.objective.prepare(recorded, step.state.objective, step.world.sum)


def sample_groups(step: Step, prompts: Sequence[Prompt], streams: Streams) -> Samples:
    """Samples a group for each prompt.

    Raises:
        ConfigError: memory ran out; it names the remedy.
    """
    domain, progress = step.domain, step.state.progress
    message = f"memory ran out while {len(prompts)} groups of {step.group_size} were sampled"
    gradient = nullcontext() if domain.keeps_graph else torch.no_grad()
    with running_out(f"{message}; write {domain.memory_remedy}"), whole_weights(domain, step.world), gradient:
        return domain.sample(
            prompts,
            step.group_size,
            streams=streams,
            step=progress.step,
            settings={name: schedule.at(progress.stage_step) for name, schedule in step.recipe.sampling.items()},
            requires=step.objective.requires_sampled,
        )


def noised_again(step: Step, samples: Samples, streams: Streams) -> Samples:
    """Returns the members with noised copies of them as their decisions, for a method without log-probs."""
    domain, matching = step.domain, step.objective.matching
    assert not isinstance(matching, NoMatching)
    assert isinstance(domain, Matches), "preflight checks that the domain noises its samples"
    with step.state.progress.timed("scoring"), torch.no_grad():
        return domain.noised(samples, matching, streams=streams, step=step.state.progress.step)


def beside_reference(step: Step, samples: Samples) -> Samples:
    """Adds to the members the reference's values that an exact divergence needs."""
    domain, state = step.domain, step.state
    assert isinstance(domain, ComparesExactly), "preflight checks that the domain supplies the field or the term"
    with state.progress.timed("scoring"), state.reference.active(), torch.no_grad():
        return domain.with_reference(samples)


def scored_by_trainer(step: Step, samples: Samples) -> Samples:
    """Adds to members that a server sampled the log-probs, and the other fields, of the trained weights."""
    with step.state.progress.timed("scoring"):
        recorded = _scored(step, samples, (step.objective.requires_sampled & step.domain.supplies) | {"log_prob"})
        samples = replace(samples, old_log_prob=recorded.log_prob, recorded=recorded)
        step.domain.check_scored(samples)
    return samples


def scored_by_reference(step: Step, samples: Samples) -> Samples:
    """Gives the members the log-probs of the reference policy."""
    with step.state.progress.timed("scoring"), step.state.reference.active():
        return replace(samples, reference_log_prob=_scored(step, samples, frozenset({"log_prob"})).log_prob)


def _scored(step: Step, samples: Samples, requires: frozenset[str]) -> Scored:
    everyone = torch.arange(len(samples), device=samples.mask.device)
    fields = score_without_gradient(step, samples, everyone, requires).tensors()
    return Scored.from_tensors({name: fields[name].to(samples.old_log_prob.dtype) for name in requires})


def num_prompts_to_draw(num_groups: int, num_admitted: int, num_drawn: int) -> int:
    """Returns the number of prompts that a further round draws: the missing groups divided by the share admitted so
    far, which counts as a quarter at least.
    """
    return min(num_groups, math.ceil((num_groups - num_admitted) / max(num_admitted / num_drawn, 0.25)))


def admitted_groups(step: Step, rounds: Sequence[Collected], admitted: Sequence[int]) -> Collected:
    """Joins the first admitted groups of several rounds into one batch, and compares them: advantages are computed over
    exactly these groups.

    Args:
        admitted: the places of the admitted groups of all processes.
    """
    num_groups = step.recipe.train.prompts_per_step
    chosen, remarks = sorted(admitted)[:num_groups], []
    if len(chosen) < num_groups:
        consequence = "the step trains those" if chosen else "the step has no policy term"
        remarks = [
            f"{len(rounds)} rounds of sampling gave {len(chosen)} of {num_groups} groups that may train; {consequence}"
        ]
    samples, batch = Samples.concatenate([part.samples for part in rounds]), None
    if chosen:
        samples = samples.select(torch.isin(samples.place, samples.place.new_tensor(chosen)).nonzero()[:, 0])
        batch = compared(step, on_cpu(samples))
    return replace(rounds[0], samples=samples, batch=batch, remarks=remarks)


def check_running(objective: Objective, processes: Sequence[Mapping[str, float]]) -> None:
    """Refuses running statistics if the rewards of one process alone were used for them: later batches are compared
    with these statistics, and a checkpoint keeps those of the first process.

    Args:
        processes: the statistics of each process, by name.

    Raises:
        ConfigError: they differ.
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
