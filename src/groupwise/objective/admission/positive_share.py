"""Groups in which enough members succeed: source 004's conditional GRPO."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Bool
from pydantic import Field
from torch import Tensor

from groupwise.objective.grouped import Grouped
from groupwise.objective.slot import AdmissionSlot


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
