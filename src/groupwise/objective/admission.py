"""Admission: which groups train at all. Nothing is dropped by its reward: keeping the best of a group would delete its
negatives.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, final

import torch
from jaxtyping import Bool
from pydantic import Field
from torch import Tensor

from groupwise.config import PieceFromPath
from groupwise.config.errors import Length
from groupwise.objective.grouped import Grouped
from groupwise.objective.slot import AdmissionSlot, admission_problem


@final
class Everything(AdmissionSlot):
    """All groups: flat ones have advantage 0 and still count in every divisor.

    Example:
        >>> Everything()(Grouped.of([1.0, 0.0], [1.0, 1.0])).tolist()
        [True, True]
    """

    kind: Literal["all"] = "all"

    def __call__(self, rewards: Grouped) -> Bool[Tensor, " P"]:
        """Returns `[num_groups]` bool."""
        return torch.ones(rewards.num_groups, dtype=torch.bool, device=rewards.value.device)


@final
class Informative(AdmissionSlot):
    """Groups that are not flat (at any place, for reward maps). Dropped groups leave the divisor of token means.

    Example:
        >>> Informative()(Grouped.of([1.0, 0.0], [1.0, 1.0])).tolist()
        [True, False]
    """

    kind: Literal["informative"] = "informative"

    def __call__(self, rewards: Grouped) -> Bool[Tensor, " P"]:
        """Returns `[num_groups]` bool."""
        return ~rewards.group_flat.all(dim=1)


@final
class PositiveShare(AdmissionSlot):
    """Groups that are not flat and in which at least `min_positive_ratio` of the rewards exceed `threshold`.

    Example:
        A half; all, but flat; a third.

        >>> PositiveShare(min_positive_ratio=0.5)(Grouped.of([1.0, 0.0], [1.0, 1.0], [1.0, 0.0, 0.0])).tolist()
        [True, False, False]

    Source: `min_positive_ratio` of source 004.
    """

    kind: Literal["positive_share"] = "positive_share"
    threshold: float = 0.0
    """A reward above it is a success."""
    min_positive_ratio: float = Field(default=0.25, ge=0, le=1)

    def __call__(self, rewards: Grouped) -> Bool[Tensor, " P"]:
        """Returns `[num_groups]` bool."""
        hits = rewards.value.new_zeros(rewards.num_groups).index_add(
            0, rewards.index, ((rewards.value > self.threshold) & rewards.present).double().sum(1)
        )
        # The slack is for products such as 0.55 * 20, which rounds to just above 11.
        enough = hits + 1e-9 >= self.min_positive_ratio * rewards.group_size.sum(1)
        return enough & ~rewards.group_flat.all(dim=1)


@final
class Resample(AdmissionSlot):
    """Admits groups that are not flat. The trainer draws further prompts until the batch is full, at most `max_rounds`
    times.

    After that it trains the groups that were admitted, and a log line says so.

    Example:
        >>> Resample()(Grouped.of([1.0, 0.0], [1.0, 1.0])).tolist()
        [True, False]

    Source: DAPO, arXiv 2503.14476, section 3.2.
    """

    resamples: ClassVar[bool] = True
    kind: Literal["resample"] = "resample"
    max_rounds: Length = 4
    """The largest number of samplings for one batch, the first included."""

    @property
    def rounds(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The largest number of samplings for one batch."""
        return self.max_rounds

    def __call__(self, rewards: Grouped) -> Bool[Tensor, " P"]:
        """Returns `[num_groups]` bool."""
        return ~rewards.group_flat.all(dim=1)


@final
class CallableAdmission(PieceFromPath, AdmissionSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `AdmissionSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableAdmission(path="groupwise.objective.admission:Informative").piece
        Informative(kind='informative')
    """

    base: ClassVar[type[AdmissionSlot]] = AdmissionSlot

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return admission_problem(result, arguments[0].num_groups)


Admission = Annotated[
    Everything | Informative | PositiveShare | Resample | CallableAdmission, Field(discriminator="kind")
]
