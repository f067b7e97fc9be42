"""One real group of an experiment, sampled, rewarded and compared without any training, for `groupwise check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch

from groupwise.config import ConfigError
from groupwise.domain.base import Domain
from groupwise.domain.returned import checked_prompts, checked_records, checked_rewards, checked_samples
from groupwise.experiment.schema import Experiment
from groupwise.streams import Streams


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
    """

    prompt: Mapping[str, Any]
    members: Sequence[Mapping[str, Any]]
    rewards: Mapping[str, Sequence[float | None]]
    weights: Mapping[str, float]
    advantages: Sequence[float]
    num_decisions: Sequence[int]
    truncated: Sequence[bool]
    events: Sequence[str]

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
    )
