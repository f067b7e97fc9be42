"""Recorded decisions: mask, log-probs and further fields, in one record from the rollouts to the slots."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import final

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from groupwise.records import DECISION_FIELDS, DecisionFields, Rollouts


@final
@dataclass(frozen=True)
class Acted(DecisionFields):
    """The decisions of some members, as they were recorded, with the `DecisionFields` that rollouts gave. `Batch`,
    `Plan` and `Decisions` hold it whole.

    Args:
        mask: `[B, T]` bool, true where a decision counts: in a batch the valid ones, in a plan those of admitted
            members.
        old_log_prob: `[B, T]` nats, under the policy that acted.
        member: `[B]` ids that do not depend on how members are dealt out.
        density: whether log-probs are of densities, which may exceed zero.
        packed: whether every member's valid decisions are known to be its first ones; false is always right, and
            slower.

    Example:
        >>> acted = Acted(torch.tensor([[True, True], [True, False]]), torch.tensor([[-1.0, -2.0], [-3.0, torch.nan]]))
        >>> acted.select(torch.tensor([1, -1])).mask.tolist()
        [[True, False], [False, False]]
        >>> acted.clean(torch.float64).old_log_prob.tolist()
        [[-1.0, -2.0], [-3.0, 0.0]]
    """

    mask: Bool[Tensor, "B T"]
    old_log_prob: Float[Tensor, "B T"]
    _: KW_ONLY
    member: Int[Tensor, " B"] | None = None
    density: bool = False
    packed: bool = False

    @staticmethod
    def of(rollouts: Rollouts) -> Acted:
        """Returns the decisions of rollouts; a member without an id gets its place in the batch as id.

        Args:
            rollouts: whole groups.
        """
        member = rollouts.member
        return Acted(
            rollouts.mask,
            rollouts.old_log_prob,
            member=torch.arange(len(rollouts.group), device=rollouts.group.device) if member is None else member,
            density=rollouts.density,
            packed=is_packed(rollouts.mask),
            **rollouts.decision_fields(),
        )

    def __len__(self) -> int:
        return self.mask.shape[0]

    def select(self, rows: Int[Tensor, " N"], decisions: slice | None = None) -> Acted:
        """Returns some members, or a slice of their decisions.

        Args:
            rows: the members' rows, in the new order. A negative row is filler: it repeats member 0, and none of its
                decisions counts.
            decisions: the slice of their decisions; unset takes all.
        """
        picked = {name: part(value, rows, decisions) for name, value in self._tensors().items()}
        picked["mask"] = picked["mask"] & (rows >= 0)[:, None]
        return replace(self, **picked)

    def clean(self, dtype: torch.dtype) -> Acted:
        """Returns the decisions with all their numbers in one dtype, 0 where the mask is false.

        Args:
            dtype: the dtype of the loss.
        """
        numbers = {name: value for name, value in self._tensors().items() if value.is_floating_point()}
        return replace(self, **{name: self.masked(value.to(dtype)) for name, value in numbers.items()})

    def masked(self, values: Float[Tensor, "R K"], fill: float = 0.0) -> Float[Tensor, "B T"]:
        """Returns `values` with `fill` where the mask is false.

        Args:
            values: `[B, T]`, or a shape that broadcasts to it.
            fill: the value at masked places.
        """
        return torch.where(self.mask, values, torch.full((), fill, dtype=values.dtype, device=values.device))

    def _tensors(self) -> dict[str, Tensor]:
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}


OPTIONAL = frozenset(DECISION_FIELDS)
"""The fields that a slot may name in `reads`: rollouts have them where the objective asks."""


def part(
    values: Shaped[Tensor, " B *K"], rows: Int[Tensor, " N"], decisions: slice | None = None
) -> Shaped[Tensor, " N *L"]:
    """Returns the values of some members, or of a slice of their decisions where there is one value a decision.

    Args:
        values: one a member, `[B]` or `[B, 1]`, or one a decision, `[B, T]`.
        rows: the members' rows; a negative row repeats member 0.
        decisions: the slice of their decisions; unset takes all.

    Example:
        >>> part(torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([1]), slice(1, 3)).tolist()
        [[5, 6]]
    """
    chosen = values[rows.clamp(min=0)]
    return chosen if decisions is None or chosen.dim() == 1 or chosen.shape[1] == 1 else chosen[:, decisions]


def is_packed(mask: Bool[Tensor, "B T"]) -> bool:
    """Returns whether every member's valid decisions are its first ones, as those of completions are.

    Args:
        mask: `[B, T]` bool.

    Example:
        >>> is_packed(torch.tensor([[True, True, False]])), is_packed(torch.tensor([[True, False, True]]))
        (True, False)
    """
    gaps = mask[:, 1:] & ~mask[:, :-1]
    return gaps.numel() == 0 or not bool(gaps.view(torch.uint8).amax())
