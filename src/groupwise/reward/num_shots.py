"""What examples cost: the number that were shown, as a reward of negative weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, final

from pydantic import model_validator

from groupwise.reward.base import Reward
from groupwise.reward.text import Text


@final
class NumShots(Reward):
    """`R` = the number of examples that were shown; its weight, which must not be above 0, is what one more is allowed to cost.

    With a policy that may stop (`stop` among its picks), `weight = -0.01` makes a further example worth picking when it adds more than a hundredth to the other
    rewards. Where every member has as many examples it is the same for all and changes nothing.

    Example:
        >>> NumShots(weight=-0.01)(["q1"] * 2, ["7", "7"], shots=[4, 1])
        [4.0, 1.0]
    """

    kind: Literal["num_shots"] = "num_shots"

    @model_validator(mode="after")
    def _costs(self) -> NumShots:
        if self.weight > 0:
            raise ValueError(f"weight = {self.weight} would reward every further example for being there; write weight = {-self.weight}")
        if "weight" not in self.model_fields_set:
            raise ValueError("weight is missing: what one more example may cost, as a negative number; write for example weight = -0.01")
        return self

    @property
    def needs(self) -> tuple[str, ...]:
        """The column with the number of examples."""
        return ("shots",)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Any], **columns: Sequence[Any]) -> list[float]:
        return [float(shots) for shots in columns["shots"]]
