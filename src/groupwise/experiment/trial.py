"""One real group and one real step of an experiment, for `groupwise check` and `groupwise estimate`."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch

from groupwise.config import ConfigError
from groupwise.domain.base import Domain
from groupwise.domain.protocol import Samples
from groupwise.domain.returned import checked_prompts, checked_records, checked_rewards, checked_samples
from groupwise.experiment.runner import job_of, open_domain
from groupwise.experiment.schema import Experiment
from groupwise.reference import ReferencePolicy
from groupwise.reward import RewardTable
from groupwise.runs import RunFolder
from groupwise.streams import Streams, seed_everything
from groupwise.track import MetricsFile, Trackers, read_metrics
from groupwise.training.device import exact_arithmetic
from groupwise.training.distributed import World
from groupwise.training.job import Domains
from groupwise.training.run.loop import Interrupt, Session, run_stage
from groupwise.training.run.preflight import check_configuration, check_domain, check_memory, device_of
from groupwise.training.run.stages import stage_reference
from groupwise.training.step.passes import fit_passes
from groupwise.training.step.state import Progress, TrainState


@final
@dataclass(frozen=True)
class OneGroup:
    """One group with its rewards and advantages.

    Args:
        prompt: the prompt's columns.
        members: the domain's description of each member.
        rewards: name -> one number a member, None where missing.
        weights: name -> weight in the sum.
        advantages: one number a member: the mean over its decisions, which are equal unless a reward is a map.
        num_decisions: one count a member.
        truncated: one flag a member: whether a limit cut the member off.
        events: the events of the scoring, in words.
        broken_laws: a sentence for each reward that gives the members other values when it scores them again.
    """

    prompt: Mapping[str, Any]
    members: Sequence[Mapping[str, Any]]
    rewards: Mapping[str, Sequence[float | None]]
    weights: Mapping[str, float]
    advantages: Sequence[float]
    num_decisions: Sequence[int]
    truncated: Sequence[bool]
    events: Sequence[str]
    broken_laws: Sequence[str]

    @property
    def flat(self) -> bool:
        """True where every member has advantage 0, so that the group gives no gradient."""
        return not any(self.advantages)


def one_group(experiment: Experiment, domain: Domain, index: int = 0) -> OneGroup:
    """Samples the group of one training prompt, scores it and computes its advantages, as the first sampling stage
    would.

    Args:
        experiment: the experiment as it holds during the stage that samples.
        domain: the domain of the experiment.
        index: the prompt's index in the training set, from 0.

    Raises:
        ConfigError: there is no prompt of that index.
    """
    if not 0 <= index < domain.num_prompts:
        raise ConfigError(f"prompt {index} does not exist: the training set has {domain.num_prompts}, counted from 0")
    objective = experiment.objective.on(density=domain.density)
    prompts = checked_prompts(domain.prompts([index]), 1)
    settings = {name: schedule.at(0) for name, schedule in experiment.domain.sampling_schedule.items()}
    with torch.no_grad():
        samples = domain.sample(
            prompts,
            experiment.train.group_size,
            streams=Streams(experiment.seed),
            step=0,
            settings=settings,
            requires=objective.requires,
        )
    samples = checked_samples(samples, 1, experiment.train.group_size, domain)
    table = checked_rewards(domain.reward(samples), len(samples))
    # Before the first step the reference is the policy itself.
    if "reference_log_prob" in objective.requires_rollouts:
        samples = replace(samples, reference_log_prob=samples.old_log_prob)
    rollouts = replace(samples, rewards=table).rollouts(objective.requires_rollouts, density=domain.density)
    batch = objective.prepare(rollouts, objective.init())
    lengths = samples.mask.sum(1)
    advantages = torch.where(samples.mask, batch.advantage, 0.0).sum(1) / lengths.clamp(min=1)
    return OneGroup(
        prompt=dict(prompts[0].columns),
        members=checked_records(domain.describe(samples, torch.arange(len(samples))), len(samples)),
        rewards=table.values,
        weights=table.weights,
        advantages=advantages.tolist(),
        num_decisions=lengths.tolist(),
        truncated=[False] * len(samples) if samples.truncated is None else samples.truncated.tolist(),
        events=[f"{event.reward}: {event.name} x {event.count} {event.detail}".strip() for event in table.events],
        broken_laws=_broken_laws(domain, samples, table),
    )


def _broken_laws(domain: Domain, samples: Samples, table: RewardTable) -> list[str]:
    """Scores the group again, and in reverse order: a value belongs to the member, not to its place or the moment."""
    rows = torch.arange(len(samples)).flip(0)
    again, turned = (
        checked_rewards(domain.reward(members), len(samples)).values for members in (samples, samples.select(rows))
    )
    broken = []
    for name, values in table.values.items():
        size = max((abs(value) for value in values if value is not None), default=0.0)
        for how, others in (("again", again.get(name, ())), ("in reverse order", turned.get(name, ())[::-1])):
            pairs = enumerate(zip(values, others, strict=False))
            if (different := next((row for row in pairs if not _is_same(*row[1], size)), None)) is not None:
                place, (before, after) = different
                broken.append(
                    f"reward {name!r} gave member {place} {before}, and {after} when it scored the group {how}; a value"
                    " belongs to the member alone (groupwise.testing.check_reward tries every law)"
                )
                break
    return broken


def _is_same(left: float | None, right: float | None, size: float) -> bool:
    # A model in half precision rounds otherwise where its batches hold other members.
    return left is right if left is None or right is None else abs(left - right) <= 0.01 * size


def measured_step(span: Experiment) -> Mapping[str, float]:
    """Runs two steps of a stage that samples, and returns the metrics of the second: the first also pays for what is
    made once. Nothing is evaluated, and nothing is kept.

    Args:
        span: the stage, as one of `Experiment.spans`.

    Returns:
        metric -> number; `seconds/...` and `step_time` in seconds, `memory/peak_mib` of the device, or on a CPU of this
        process.

    Raises:
        ConfigError: as a run of the experiment.
    """
    # An expired `max_seconds` ends the stage after one step, without an evaluation.
    timed = span.train.model_copy(update={"max_seconds": 1e-9, "num_steps": 10**9, "callbacks": []})
    job = job_of(span.model_copy(update={"train": timed, "controls": {}, "start": None}))
    check_configuration(job)
    device, streams, world = device_of(job.recipes[0]), Streams(span.seed), World()
    check_memory(job.recipes[0], device)
    torch.set_num_threads(span.train.num_threads)
    seed_everything(span.seed)
    with (
        exact_arithmetic(timed, device),
        tempfile.TemporaryDirectory() as folder,
        closing(Domains(open_domain(span, device))) as domains,
    ):
        domain = domains.of(job.recipes[0])
        recipe = job.recipes[0].on(density=domains.base.density).fitted(domain.num_prompts)
        check_domain(domain, recipe, streams, world)
        state = TrainState(Progress(), recipe.objective.init(), domain.learner)
        state.learner.checkpoint_activations(recipe.train.gradient_checkpointing)
        if "optimisers" in state.learner.offers:
            state.learner.use_optimiser(recipe.optimiser.source)
        state.reference = ReferencePolicy(stage_reference(recipe), state.learner)
        state.begin_average(recipe.train.weight_average)
        fit_passes(domain, state, world)
        state.memory.begin_stage(recipe, domain)
        run = RunFolder(Path(folder))
        metrics = MetricsFile(run.metrics)
        session = Session(domain, streams, world, device, run, metrics, Trackers([]), None, Interrupt(), watch=None)
        for _ in range(2):
            run_stage(session, recipe, state)
            state.progress.stage_ended = ""
        return {
            name: value for name, value in list(read_metrics(run.metrics))[-1].items() if isinstance(value, float | int)
        }
