"""Behaviour correction: a detached weight `k` for what the sampler really did, `exp(lp_old - lp_behaviour)`, bounded;
of decisions, or of whole members.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, final

import torch
from jaxtyping import Bool, Float
from pydantic import Field, model_validator
from torch import Tensor

from groupwise.config import PieceFromPath
from groupwise.objective.decisions import LOG_LIMIT
from groupwise.objective.slot import CorrectionSlot, per_decision_problem
from groupwise.statistics import row_count

# Importance weights of the old policy over the sampler, `exp(lp_old - lp_behaviour)`: of a decision, of a member, and
# the geometric mean over a member's decisions.


def decision_weight(log_weight: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Returns `w [B, T]`, of each decision.

    Args:
        log_weight: `lp_old - lp_behaviour`, nats.
    """
    return log_weight.exp()


def member_weight(log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B 1"]:
    """Returns `[B, 1]`, the product over a member's valid decisions, clamped to `exp(+-80)`; 1 for a member without
    any.

    Args:
        log_weight: `lp_old - lp_behaviour`, nats.
        mask: valid decisions.

    Example:
        >>> member_weight(torch.tensor([[2.0, 1.5, 9.0]]).log(), torch.tensor([[True, True, False]])).tolist()
        [[3.0]]
    """
    return torch.where(mask, log_weight, 0.0).sum(1, keepdim=True).clamp(-LOG_LIMIT, LOG_LIMIT).exp()


def mean_weight(log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B 1"]:
    """Returns `[B, 1]`, the geometric mean over a member's valid decisions; 1 for a member without any.

    Args:
        log_weight: `lp_old - lp_behaviour`, nats.
        mask: valid decisions.

    Example:
        >>> mean_weight(
        ...     torch.tensor([[2.0, 8.0, 9.0]], dtype=torch.float64).log(), torch.tensor([[True, True, False]])
        ... ).round(decimals=9).tolist()
        [[4.0]]
    """
    return (torch.where(mask, log_weight, 0.0).sum(1, keepdim=True) / row_count(mask).clamp(min=1)).exp()


@final
class Interval(CorrectionSlot):
    """`k = w 1[lower <= w <= upper]` with `w = exp(lp_old - lp_behaviour)` per decision; survivors keep `w`.

    Example:
        >>> import torch
        >>> log_weight = torch.tensor([[0.4, 1.5], [1.5, 6.0]]).log()
        >>> [
        ...     [round(value, 3) for value in row]
        ...     for row in Interval()(log_weight, torch.ones(2, 2, dtype=torch.bool)).tolist()
        ... ]
        [[0.0, 1.5], [1.5, 0.0]]

    Source: IcePop, Ling team 2025, arXiv 2510.18855.
    """

    kind: Literal["interval"] = "interval"
    lower: float = Field(default=0.5, gt=0)
    upper: float = Field(default=5.0, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Interval:
        if self.lower >= self.upper:
            raise ValueError(f"lower ({self.lower}) must be below upper ({self.upper})")
        return self

    def __call__(self, log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Returns `k [B, T]` from `lp_old - lp_behaviour`."""
        weight = log_weight.exp()
        return torch.where((weight >= self.lower) & (weight <= self.upper), weight, torch.zeros_like(weight))


@final
class Mask(CorrectionSlot):
    """`k_t = v_t 1[minimum <= m <= maximum]`: a member is kept or dropped whole, by `m`, the product of its `w_t =
    exp(lp_old - lp_behaviour)` or their mean.

    The weight `v_t` of the survivors is a separate choice: each decision's `w_t`, the member's product, or 1.

    Example:
        Products 0.6 and 9.

        >>> import torch
        >>> log_weight, mask = torch.tensor([[0.4, 1.5], [1.5, 6.0]]).log(), torch.ones(2, 2, dtype=torch.bool)
        >>> [[round(k, 3) for k in row] for row in Mask()(log_weight, mask).tolist()]
        [[0.4, 1.5], [0.0, 0.0]]
        >>> [[round(k, 3) for k in row] for row in Mask(weight="product")(log_weight, mask).tolist()]
        [[0.6, 0.6], [0.0, 0.0]]

        Geometric means .775 and 3.

        >>> [
        ...     [round(k, 3) for k in row]
        ...     for row in Mask(by="mean", minimum=0.8, maximum=4.0, weight="one")(log_weight, mask).tolist()
        ... ]
        [[0.0, 0.0], [1.0, 1.0]]

    Source: Liu et al. 2025, "When speed kills stability" (its Seq-MIS has `weight = "product"`); the mean: verl's
    rollout correction (Geo-RS).
    """

    kind: Literal["mask"] = "mask"
    maximum: float = Field(default=2.0, gt=0)
    """The largest `m` that still trains."""
    minimum: float = Field(default=0.0, ge=0)
    """The smallest `m` that still trains; 0 sets no bound."""
    by: Literal["product", "mean"] = "product"
    """The product over a member's decisions, which for a long member is far from 1 by its length alone, or their
    geometric mean.
    """
    weight: Literal["decision", "product", "one"] = "decision"
    """The weight of survivors."""
    truncate: float | None = Field(default=None, gt=0)
    """The largest weight of a survivor: rejection and truncated importance sampling together."""

    @model_validator(mode="after")
    def _ordered(self) -> Mask:
        if self.minimum >= self.maximum:
            raise ValueError(f"minimum ({self.minimum}) must be below maximum ({self.maximum})")
        return self

    def __call__(self, log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Returns `k [B, T]` from `lp_old - lp_behaviour`."""
        product = member_weight(log_weight, mask)
        measure = product if self.by == "product" else mean_weight(log_weight, mask)
        weight = {
            "decision": lambda: decision_weight(log_weight),
            "product": lambda: product.expand_as(log_weight),
            "one": lambda: torch.ones_like(log_weight),
        }
        survivors = weight[self.weight]() if self.truncate is None else weight[self.weight]().clamp(max=self.truncate)
        is_kept = (measure >= self.minimum) & (measure <= self.maximum)
        return torch.where(is_kept, survivors, 0.0)


@final
class NoCorrection(CorrectionSlot):
    """`k = 1`.

    Example:
        >>> import torch
        >>> log_weight = torch.tensor([[0.4, 1.5], [1.5, 6.0]]).log()
        >>> [
        ...     [round(value, 3) for value in row]
        ...     for row in NoCorrection()(log_weight, torch.ones(2, 2, dtype=torch.bool)).tolist()
        ... ]
        [[1.0, 1.0], [1.0, 1.0]]
    """

    reads: ClassVar[frozenset[str]] = frozenset()
    neutral: ClassVar[bool] = True
    kind: Literal["none"] = "none"

    def __call__(self, log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Returns `k [B, T]` from `lp_old - lp_behaviour`."""
        return torch.ones_like(log_weight)


@final
class Truncate(CorrectionSlot):
    """`k = min(max(w, minimum), maximum)` with `w = exp(lp_old - lp_behaviour)` of each decision, or their product over
    the member: no decision is lost.

    Example:
        >>> import torch
        >>> log_weight, mask = torch.tensor([[0.4, 1.5], [1.5, 6.0]]).log(), torch.ones(2, 2, dtype=torch.bool)
        >>> [[round(k, 3) for k in row] for row in Truncate()(log_weight, mask).tolist()]
        [[0.4, 1.5], [1.5, 2.0]]

        Products 0.6 and 9, which every decision of the member carries.

        >>> [[round(k, 3) for k in row] for row in Truncate(level="member")(log_weight, mask).tolist()]
        [[0.6, 0.6], [2.0, 2.0]]

    Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy training" (TIS); over members:
    Liu et al. 2025 (Seq-TIS).
    """

    kind: Literal["truncate"] = "truncate"
    maximum: float = Field(default=2.0, gt=0)
    minimum: float = Field(default=0.0, ge=0)
    """A lower bound; 0 sets none."""
    level: Literal["decision", "member"] = "decision"
    """Each decision's own weight, or the product over its member, clamped to `exp(+-80)`."""

    @model_validator(mode="after")
    def _ordered(self) -> Truncate:
        if self.minimum >= self.maximum:
            raise ValueError(f"minimum ({self.minimum}) must be below maximum ({self.maximum})")
        return self

    def __call__(self, log_weight: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        """Returns `k [B, T]` from `lp_old - lp_behaviour`."""
        weight = (
            decision_weight(log_weight)
            if self.level == "decision"
            else member_weight(log_weight, mask).expand_as(log_weight)
        )
        return weight.clamp(self.minimum, self.maximum)


@final
class CallableCorrection(PieceFromPath, CorrectionSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `CorrectionSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableCorrection(path="groupwise.objective.correction:Truncate", settings={"maximum": 3.0}).piece.maximum
        3.0
    """

    base: ClassVar[type[CorrectionSlot]] = CorrectionSlot
    unread: ClassVar[Mapping[str, Any]] = {"reads": frozenset()}

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return per_decision_problem(result, arguments[1])


Correction = Annotated[
    NoCorrection | Truncate | Mask | Interval | CallableCorrection,
    Field(discriminator="kind"),
]
