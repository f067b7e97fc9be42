"""A group size that grows while all rewards of a group are equal and shrinks while they never are: the dynamic group
size, a later idea of source 002. Imports no torch.
"""

from __future__ import annotations

from typing import Annotated, final

from pydantic import Field, model_validator

from groupwise.config import Config
from groupwise.config.numbers import PerStep


@final
class DynamicGroupSize(Config):
    """After a step in which more than `grow_above` of the groups were flat, groups are twice as large; after one with
    fewer than `shrink_below`, half as large.

    A flat group teaches nothing, and more members make it less likely; where no group is flat, fewer members give more
    prompts for the same cost. `train.group_size` is the size of the first step.

    Args:
        minimum, maximum: bounds of the group's size.
        grow_above, shrink_below: shares of flat groups, between 0 and 1.

    Example:
        >>> rule = DynamicGroupSize(minimum=4, maximum=16)
        >>> (
        ...     rule.next(8, flat_share=0.75),
        ...     rule.next(8, flat_share=0.3),
        ...     rule.next(8, flat_share=0.0),
        ...     rule.next(16, flat_share=1.0),
        ... )
        (16, 8, 4, 16)

    Source: source 002's list of later ideas.
    """

    minimum: Annotated[PerStep, Field(ge=2)] = 2
    maximum: Annotated[PerStep, Field(ge=2)] = 32
    grow_above: Annotated[float, Field(ge=0, le=1)] = 0.5
    shrink_below: Annotated[float, Field(ge=0, le=1)] = 0.1

    @model_validator(mode="after")
    def _ordered(self) -> DynamicGroupSize:
        if self.minimum > self.maximum:
            raise ValueError(
                f"minimum = {self.minimum} is above maximum = {self.maximum}; write minimum = {self.maximum} or less"
            )
        if self.shrink_below > self.grow_above:
            raise ValueError(
                f"shrink_below = {self.shrink_below} is above grow_above = {self.grow_above}, so a group would grow and"
                " shrink at once; exchange them"
            )
        return self

    def next(self, size: int, flat_share: float) -> int:
        """Returns the size of the next step's groups.

        Args:
            size: members in a group of this step.
            flat_share: share of this step's groups whose rewards were all equal.
        """
        if flat_share > self.grow_above:
            size *= 2
        elif flat_share < self.shrink_below:
            size //= 2
        return min(max(size, self.minimum), self.maximum)
