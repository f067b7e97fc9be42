"""The cost of examples, for a policy that may stop picking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.reward.base import Reward
from groupwise.reward.text import Text


@final
class ShotCost(Reward):
    """`R = - shots`, the number of examples that were shown; its weight is the cost of one more.

    With a policy that may stop, a weight of 0.01 makes a further example worth picking when it adds more than a
    hundredth to the other rewards. Where every member is shown as many examples it is the same for all and changes
    nothing.

    Example:
        >>> ShotCost()(["q1"] * 2, ["7", "7"], shots=[4, 1])
        [-4.0, -1.0]
    """

    kind: Literal["shot_cost"] = "shot_cost"
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    """The cost of one more example, in units of the sum of rewards."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The column with the number of examples."""
        return ("shots",)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> list[float]:
        return [-float(shots) for shots in columns["shots"]]
