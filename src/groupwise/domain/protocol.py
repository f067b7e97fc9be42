"""The records and protocols between a domain and training: prompts, samples, tables, evaluations, and optional
abilities of a domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from groupwise.domain.pass_sizes import PassSizes
from groupwise.objective.matching import CopyMatching
from groupwise.records import DECISION_FIELDS, DecisionFields, Rollouts, Scored
from groupwise.reward import RewardError, RewardEvent, RewardTable
from groupwise.streams import Streams

CONSISTENCY = "consistency"
"""The auxiliary term that compares the policy's output with the reference's."""


@dataclass(frozen=True)
class Prompt:
    """The prompt that a group shares: a stable key and JSON-able columns."""

    key: str
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class Samples(DecisionFields):
    """One batch of sampled members, whole groups. A sampler gives those `DecisionFields` that it knows; training adds
    the reference's log-probs and the last three fields.

    Args:
        prompts: `P` prompts.
        group: `[B]`, the place of each member's prompt in `prompts`.
        mask: `[B, T]` bool, true where a decision counts.
        old_log_prob: `[B, T]` nats, full distribution at the sampling temperature.
        recorded: the sampler's own fields, so that the first update after sampling needs no forward pass of its own.
        truncated: `[B]` bool, cut off by a limit.
        payload: data of the domain, one row a member: tensors `[B, ...]` or lists of `B`.
        auxiliary_count: name -> `[B]`, denominators of auxiliary terms.
        settings: the sampling settings that were used (temperature, ...).
        numbers: metrics of the sampling itself, logged as `sampling/NAME`; those of several batches are added.
        place: `[B]`, the place of each member's group in the whole step, over all processes; by default `group`.
        rewards: the rewards of the members; empty before they are rewarded.
        reward_history: `[B, H]` earlier rewards of the members' prompts, where a run keeps them.
    """

    prompts: Sequence[Prompt]
    group: Tensor
    mask: Tensor
    old_log_prob: Tensor
    recorded: Scored | None = None
    truncated: Tensor | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    auxiliary_count: Mapping[str, Tensor] = field(default_factory=dict)
    settings: Mapping[str, float] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    place: Tensor = None  # pyright: ignore[reportAssignmentType]
    rewards: RewardTable = field(default_factory=lambda: RewardTable({}))
    reward_history: Tensor | None = None

    def __post_init__(self) -> None:
        if self.place is None:  # pyright: ignore[reportUnnecessaryComparison]
            object.__setattr__(self, "place", self.group)

    def __len__(self) -> int:
        return self.mask.shape[0]

    def rollouts(self, requires: frozenset[str], *, density: bool) -> Rollouts:
        """Returns rewarded members in the form that the objective compares. A sampler that draws from the full
        distribution is its own behaviour policy.

        Args:
            requires: the fields of `Rollouts` that the objective reads.
            density: true for log-probs of densities, false for those of probabilities.
        """
        rewards, order = self.rewards, self.place.argsort(stable=True)
        ordered = self.place[order]
        within = torch.arange(len(order), device=order.device) - torch.searchsorted(ordered, ordered)
        behaviour = {"behaviour_log_prob": self.old_log_prob} if "behaviour_log_prob" in requires else {}
        return Rollouts(
            group=self.place,
            mask=self.mask,
            old_log_prob=self.old_log_prob,
            rewards={
                name: _decision_rewards(name, rewards.maps[name], self.mask) if name in rewards.maps else values
                for name, values in rewards.values.items()
            },
            reward_weights=rewards.weights,
            truncated=self.truncated,
            # The group's place in the step, then the member's place in its group: no id depends on how groups are dealt
            # to processes.
            member=self.place * _MOST_MEMBERS + torch.empty_like(within).index_copy_(0, order, within),
            density=density,
            auxiliary_count=self.auxiliary_count,
            reward_history=self.reward_history,
            reward_bounds=rewards.bounds,
            **behaviour | self.decision_fields(),
        )

    def select(self, rows: Tensor) -> Samples:
        """Selects members in the order of `rows`; `prompts` stay as they are."""
        listed = rows.tolist()
        on_cpu = torch.tensor(listed, dtype=torch.long)

        def pick(value: Any) -> Any:
            if value is None:
                return None
            # Pictures stay on the CPU, where people and rewards read them.
            return (
                value[on_cpu if value.is_cpu else rows] if isinstance(value, Tensor) else [value[row] for row in listed]
            )

        return replace(
            self,
            group=self.group[rows],
            mask=self.mask[rows],
            old_log_prob=self.old_log_prob[rows],
            recorded=None if self.recorded is None else self.recorded.select(rows),
            truncated=pick(self.truncated),
            payload={name: pick(value) for name, value in self.payload.items()},
            auxiliary_count={name: value[rows] for name, value in self.auxiliary_count.items()},
            place=self.place[rows],
            rewards=self.rewards.select(listed),
            reward_history=pick(self.reward_history),
            **{name: pick(value) for name, value in self.decision_fields().items()},
        )

    def with_decisions(self, mask: Tensor, old_log_prob: Tensor, payload: Mapping[str, Any]) -> Samples:
        """Returns the same members with other decisions; records of the old decisions are dropped.

        Args:
            mask: `[B, T]` bool, true where a decision counts.
            old_log_prob: `[B, T]` nats.
            payload: data of the domain, one row a member.
        """
        without: dict[str, Any] = dict.fromkeys(("recorded", *DECISION_FIELDS))
        return replace(self, mask=mask, old_log_prob=old_log_prob, payload=payload, **without)

    @staticmethod
    def concatenate(parts: Sequence[Samples]) -> Samples:
        """Joins several batches; shorter ones are padded with masked decisions, groups are renumbered."""
        if len(parts) == 1:
            return parts[0]
        assert all(part.settings == parts[0].settings for part in parts), "the rounds of a step are sampled alike"
        prompts = [prompt for part in parts for prompt in part.prompts]
        offsets = torch.tensor([0, *(len(part.prompts) for part in parts[:-1])]).cumsum(0).tolist()

        def join(values: Sequence[Any], fill: float = 0.0) -> Any:
            if any(value is None for value in values):
                return None
            if not isinstance(values[0], Tensor):
                return [row for value in values for row in value]
            if values[0].dim() == 1:
                return torch.cat(list(values))
            width = max(value.shape[1] for value in values)
            return torch.cat([_pad(value, width, fill) for value in values])

        recorded = None
        if all(part.recorded is not None for part in parts):
            tensors = [part.recorded.tensors() for part in parts if part.recorded is not None]
            shared = set.intersection(*map(set, tensors))
            recorded = Scored.from_tensors(
                {name: join([fields[name] for fields in tensors]) for name in sorted(shared)}
            )
        return replace(
            parts[0],
            prompts=prompts,
            group=torch.cat([part.group + offset for part, offset in zip(parts, offsets, strict=True)]),
            mask=join([part.mask for part in parts]),
            old_log_prob=join([part.old_log_prob for part in parts]),
            recorded=recorded,
            truncated=join([part.truncated for part in parts]),
            payload={name: join([part.payload[name] for part in parts]) for name in parts[0].payload},
            auxiliary_count={
                name: torch.cat([part.auxiliary_count[name] for part in parts]) for name in parts[0].auxiliary_count
            },
            place=torch.cat([part.place for part in parts]),
            rewards=RewardTable.concatenate([part.rewards for part in parts]),
            reward_history=join([part.reward_history for part in parts]),
            **{name: join([getattr(part, name) for part in parts]) for name in DECISION_FIELDS},
        )


_MOST_MEMBERS = 1 << 32


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


def _pad(value: Tensor, width: int, fill: float) -> Tensor:
    missing = width - value.shape[1]
    if missing == 0:
        return value
    return torch.cat([value, value.new_full((value.shape[0], missing, *value.shape[2:]), fill)], dim=1)


@dataclass(frozen=True)
class Interval:
    """A number with the ends of its interval."""

    mean: float
    low: float
    high: float


Cell = str | float | Interval | None


@dataclass(frozen=True)
class Table:
    """A table for people, made once when a run has ended.

    Args:
        name: the file's name without its extension.
        title: one sentence.
        columns: heads of the columns.
        rows: cells, one a column.
        notes: sentences below the table.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation, on prompts that are held out where the domain has such.

    Args:
        metrics: numbers by name.
        records: one JSON-able record a sample, with the model's output; an image in one is a `uint8` tensor `[H, W]`
            or `[H, W, 3]`.
        pictures: images for people, by name, `uint8` tensors `[H, W]` or `[H, W, 3]`.
        events: timeouts, errors and missing values of rewards and judges.
    """

    metrics: Mapping[str, float]
    records: Sequence[Mapping[str, Any]] = ()
    pictures: Mapping[str, Tensor] = field(default_factory=dict)
    events: Sequence[RewardEvent] = ()


@runtime_checkable
class CutsPasses(Protocol):
    """A domain that cuts its passes by itself, into as many rows as were measured to fit."""

    pass_sizes: PassSizes
    """The rows of each kind of pass: the same on all processes, and a part of a checkpoint."""

    def fit_passes(self, *, reserved_bytes: float = 0.0) -> None:
        """Measures the rows of every kind of pass that is not known; gradients, modes and buffers stay as they are.

        Args:
            reserved_bytes: what will be allocated in addition to the passes, such as an optimiser's moments.
        """
        ...


@runtime_checkable
class RewardsDecisions(Protocol):
    """A domain whose rewards may be maps, one value a decision, as its settings show before anything is sampled."""

    @property
    def rewards_decisions(self) -> str:
        """The key that makes a reward a map; empty where every reward is one number a member, as far as settings
        show.
        """
        ...


@runtime_checkable
class ComparesExactly(Protocol):
    """A domain that supplies `exact_divergence`, or the auxiliary term `consistency`. Both need more of the reference
    than its log-probs.
    """

    def with_reference(self, samples: Samples) -> Samples:
        """Adds to the payload what the exact divergence reads of the active policy (its means, its distributions).

        Called once for each batch of rollouts, within `reference.active()`, and only where the objective reads one of
        the two; `auxiliary_count["consistency"]` is set here. Where the sampler recorded its fields,
        `recorded.exact_divergence` is filled too, so that the first update needs no forward pass.
        """
        ...


@runtime_checkable
class Matches(Protocol):
    """A domain whose samples can be noised and denoised again, so that a method without log-probs (`matching`) may
    learn from them.
    """

    copy_fields: frozenset[str]
    """Names of the `Scored` fields that `score` can give of noised copies."""

    def check_matching(self, matching: CopyMatching) -> None:
        """Refuses a matching that does not go with the settings of the domain.

        Raises:
            ConfigError: names the key and what to write.
        """
        ...

    def noised(self, samples: Samples, matching: CopyMatching, *, streams: Streams, step: int) -> Samples:
        """Noises every member `matching.times.num` times, and returns the same members with these copies as their
        decisions: `score` gives the fields of `matching(deviation)` from now on.

        Called once for each batch of rollouts, under the weights that sampled; `recorded` and `old_log_prob` are
        theirs. The draws are keyed by step, prompt and member.

        Args:
            samples: the samples as `sample` gave them, whole groups.
            matching: the noise levels, and what is measured.
            streams: the random streams of the run, as they were given to `sample`.
            step: the step of the run; part of the generators' keys.
        """
        ...


@runtime_checkable
class Tabulates(Protocol):
    """A domain that makes tables once a run has ended, which compare its result with others."""

    def tables(self, *, streams: Streams) -> Sequence[Table]:
        """Makes tables about the policy as it is now; comparisons in them are computed here, after training."""
        ...


class Peers(Protocol):
    """The processes of a run, as far as a shared evaluation needs them."""

    def share(self, count: int) -> range:
        """Returns the places of this process in a list of `count` entries."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """Collects a plain value from each process, and returns all of them on every process."""
        ...


@runtime_checkable
class SharesEvaluation(Protocol):
    """A domain whose evaluation can be shared by several processes; other domains evaluate on the first process."""

    def evaluate_shared(self, *, streams: Streams, peers: Peers) -> Evaluation:
        """Evaluates as `evaluate` does, a share of the prompts on every process; each must call it, and gets the whole
        evaluation.
        """
        ...


@runtime_checkable
class Deploys(Protocol):
    """A domain whose exported folder is used differently from how a run evaluates its model, so that the folder is
    measured by itself.
    """

    def deployed(self, folder: Path) -> tuple[Evaluation, Sequence[Table]] | None:
        """Measures the folder as it is used, on held-out prompts, and makes tables about the result; None where the
        folder is a model folder like others.
        """
        ...
