"""The rollouts of a step, and what only some of them need: noise, a server's log-probs, several rounds of sampling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import final

import torch

from groupwise.config import ConfigError
from groupwise.domain.protocol import ComparesExactly, Matches, Prompt, Samples
from groupwise.domain.returned import checked_members, checked_samples
from groupwise.objective import Batch, Objective
from groupwise.objective.matching import NoMatching
from groupwise.processes import is_out_of_memory
from groupwise.records import Scored
from groupwise.statistics import Statistic
from groupwise.streams import Streams
from groupwise.training.step.gradient import score_without_gradient
from groupwise.training.step.memory import Earned
from groupwise.training.step.state import Step, whole_weights


@final
@dataclass(frozen=True)
class Collected:
    """The rollouts of a round, or of a whole step, on this process: whole groups with their rewards.

    Args:
        samples: the members.
        batch: the same members, compared; `None` (on all processes) when no group was admitted in any round.
        filler: a member of this process that stands in where it has none to train on.
        earned: the rewards of each group beside its prompt.
        statistics: to be summed over processes.
        numbers: metrics that have the same value on every process.
        remarks: sentences for the people who follow the run.
    """

    samples: Samples
    batch: Batch | None
    filler: Samples
    earned: Earned
    statistics: dict[str, Statistic]
    numbers: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def sample_groups(step: Step, prompts: Sequence[Prompt], streams: Streams) -> Samples:
    """Samples a group for each prompt.

    Raises:
        ConfigError: memory ran out; it names the remedy.
    """
    domain, progress = step.domain, step.state.progress
    try:
        with whole_weights(domain, step.world), nullcontext() if domain.keeps_graph else torch.no_grad():
            samples = domain.sample(
                prompts,
                step.group_size,
                streams=streams,
                step=progress.step,
                settings={name: schedule.at(progress.stage_step) for name, schedule in step.recipe.sampling.items()},
                requires=step.objective.requires_sampled,
            )
        return checked_samples(samples, len(prompts), step.group_size, domain)
    except ConfigError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        message = f"memory ran out while {len(prompts)} groups of {step.group_size} were sampled"
        raise ConfigError(f"{message}; write {domain.memory_remedy}") from error


def noised_again(step: Step, samples: Samples, streams: Streams) -> Samples:
    """Returns the members with noised copies of them as their decisions, for a method without log-probs."""
    domain, matching = step.domain, step.objective.matching
    assert not isinstance(matching, NoMatching)
    assert isinstance(domain, Matches), "preflight checks that the domain noises its samples"
    with step.state.progress.timed("scoring"), torch.no_grad():
        noised = domain.noised(samples, matching, streams=streams, step=step.state.progress.step)
    return checked_members("noised", noised, samples)


def beside_reference(step: Step, samples: Samples) -> Samples:
    """Returns the members with what an exact divergence reads of the reference."""
    domain, state = step.domain, step.state
    assert isinstance(domain, ComparesExactly), "preflight checks that the domain supplies the field or the term"
    with state.progress.timed("scoring"), state.reference.active(), torch.no_grad():
        compared = domain.with_reference(samples)
    return checked_members("with_reference", compared, samples)


def scored_by_trainer(step: Step, samples: Samples) -> Samples:
    """Gives members that a server sampled the log-probs, and the other fields, of the weights that are trained."""
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
    """Returns the number of prompts that a round draws: the missing groups divided by the share admitted so far, which
    counts as a quarter at least.
    """
    if num_drawn == 0:
        return num_groups
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
        rollouts = samples.rollouts(step.objective.requires_rollouts, density=step.domain.density)
        batch = step.objective.prepare(rollouts, step.state.objective, step.world.sum)
    return replace(rounds[0], samples=samples, batch=batch, remarks=remarks)


def check_running(objective: Objective, processes: Sequence[Mapping[str, float]]) -> None:
    """Refuses running statistics that an advantage has made of the rewards of one process: later batches are compared
    with them, and a checkpoint keeps those of the first process.

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
