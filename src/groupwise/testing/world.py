"""Small batches of hard cases: ragged masks with holes, an empty member, a member of one decision, a flat group and a
missing reward.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from groupwise.records import Rollouts, Scored

SCORED = (
    *("log_prob", "entropy", "exact_divergence", "score_norm", "mean_shift"),
    *("old_divergence", "positive_error", "negative_error"),
)
"""The fields of `Scored` that a world has as leaves."""


@final
@dataclass(frozen=True)
class World:
    """A batch and its scores as plain tensors.

    Args:
        mask: `[B, T]` bool, true where a decision counts.
        group: `[B]` integers, the number of each member's group.
        wide: tensors `[B, T]` by name, NaN or infinite where the mask is false.
        tall: tensors `[B]` by name; a NaN reward is missing.
    """

    mask: Tensor
    group: Tensor
    wide: Mapping[str, Tensor]
    tall: Mapping[str, Tensor]

    def members(self, rows: Tensor) -> World:
        """Returns the members at these rows."""
        return World(
            self.mask[rows],
            self.group[rows],
            {name: values[rows] for name, values in self.wide.items()},
            {name: values[rows] for name, values in self.tall.items()},
        )

    def padded(self, width: int) -> World:
        """Returns the same batch with masked decisions added, which hold NaN and infinity."""

        def pad(value: Tensor) -> Tensor:
            padding = value.new_full((value.shape[0], width), float("nan"))
            padding[:, ::2] = float("inf")
            return torch.cat([value, padding], 1)

        mask = torch.cat([self.mask, self.mask.new_zeros(self.mask.shape[0], width)], 1)
        return replace(self, mask=mask, wide={name: pad(value) for name, value in self.wide.items()})

    def to(self, dtype: torch.dtype) -> World:
        """Returns the same batch in another precision."""
        return replace(
            self,
            wide={name: values.to(dtype) for name, values in self.wide.items()},
            tall={name: values.to(dtype) for name, values in self.tall.items()},
        )

    def rollouts(
        self, density: bool = False, shift: float = 0.0, without: Collection[str] = (), history_size: int = 0
    ) -> Rollouts:
        """Returns the batch as recorded rollouts.

        Args:
            density: whether log-probs are of densities.
            shift: added to one of the rewards.
            without: optional fields that are left out.
            history_size: the number of earlier rewards of each prompt, of which the first prompt lacks the oldest.
        """
        tall = {"correct": self.tall["correct"] + shift, "format": self.tall["format"]}
        rewards: dict[str, Any] = {
            name: [None if value != value else value for value in values.tolist()] if values.isnan().any() else values
            for name, values in tall.items()
        }
        if "map" in self.wide:
            rewards["map"] = self.wide["map"]
        optional: dict[str, Any] = {
            "behaviour_log_prob": self.wide["behaviour"],
            "reference_log_prob": self.wide["reference"],
            "step_size": self.wide["step_size"],
        }
        return Rollouts(
            group=self.group,
            mask=self.mask,
            old_log_prob=self.wide["old"],
            rewards=rewards,
            reward_weights={"format": 0.3},
            **{name: value for name, value in optional.items() if name not in without},
            member=self.tall["member"].long(),
            density=density,
            auxiliary_count={"supervised": self.tall["count"]},
            reward_history=self._past(history_size) if history_size else None,
        )

    def _past(self, size: int) -> Tensor:
        past = (self.group[:, None] * 3 + torch.arange(size)).double() % 5 / 4
        past[self.group == 0, : (size + 1) // 2] = float("nan")
        return past

    def with_map(self, values: Tensor) -> World:
        """Returns the same batch with a reward of every decision, `[B, T]`, beside the others."""
        return replace(self, wide={**self.wide, "map": values})

    def scored(self, gradient: bool = True) -> Scored:
        """Returns the scores as leaves."""
        leaves = {name: self.wide[name].clone().requires_grad_(gradient) for name in SCORED if name in self.wide}
        return Scored(**leaves, auxiliary={"supervised": self.tall["supervised"].clone().requires_grad_(gradient)})


def world(seed: int = 0, spread: float = 0.5, width: int = 5) -> World:
    """Returns three groups of 3, 2 and 2 members: the second is flat, member 4 is empty, member 5 has one decision, and
    one reward is missing.

    Args:
        seed: seed of all random numbers.
        spread: the largest log-ratio, in nats.
        width: number of decisions `T`, masked ones included.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=generator)

    def signed(scale: float) -> Tensor:
        return scale * (2 * draw(members, width) - 1)

    members = 7
    mask = draw(members, width) < 0.7
    mask[0] = True
    mask[1] = torch.arange(width) % 2 == 0
    mask[4] = False
    mask[5] = torch.arange(width) == 2
    log_prob = -4 * draw(members, width) - 0.1
    old = log_prob - signed(spread)
    old[2] = log_prob[2]
    behaviour, reference = old + signed(0.5), log_prob + signed(0.5)
    # All of a decision's log-probs move down together until none is above zero.
    excess = torch.stack([log_prob, old, behaviour, reference]).amax(0) + 0.01
    log_prob, old, behaviour, reference = (
        value - excess.clamp(min=0) for value in (log_prob, old, behaviour, reference)
    )
    wide = {
        "log_prob": log_prob,
        "old": old,
        "behaviour": behaviour,
        "reference": reference,
        "step_size": 0.5 + draw(members, width),
        "entropy": 3 * draw(members, width),
        "exact_divergence": draw(members, width),
        "score_norm": draw(members, width),
        "mean_shift": signed(0.1),
    }
    correct = torch.tensor([0.0, 1.0, 1.0, 0.3, 0.3, 1.0, -0.5], dtype=torch.float64)
    format_reward = torch.tensor([0.5, 0.25, float("nan"), 0.5, 0.5, 0.75, 0.0], dtype=torch.float64)
    tall = {
        "correct": correct,
        "format": format_reward,
        "count": torch.tensor([0.0, 3.0, 0, 2, 0, 5, 0], dtype=torch.float64),
        "supervised": draw(members),
        "member": torch.tensor([11.0, 3, 7, 20, 2, 5, 8], dtype=torch.float64),
    }
    invalid = torch.where(draw(members, width) < 0.5, float("nan"), float("inf")).double()
    wide |= {name: draw(members, width) for name in ("old_divergence", "positive_error", "negative_error")}
    masked = {name: torch.where(mask, value, invalid) for name, value in wide.items()}
    return World(mask, torch.tensor([4, 4, 4, 9, 9, 2, 2]), masked, tall)


def extremes() -> list[World]:
    """Returns batches whose log-ratios go up to 20 nats in fp32, 80 in fp64, and 700 in fp32, as those of a policy that
    has moved far from its samples.
    """
    return [world(1, spread=20.0).to(torch.float32), world(2, spread=80.0), world(3, spread=700.0).to(torch.float32)]


def smallest() -> list[World]:
    """Returns a batch without members, as on a process that sampled nothing, and one of a member alone in its group."""
    return [world().members(torch.arange(count)) for count in (0, 1)]
