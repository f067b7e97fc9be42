"""Rewarded members: all that is known of samples before their advantages are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from groupwise.domain.protocol import Samples
from groupwise.records import Rollouts
from groupwise.reward import RewardError, RewardTable

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
