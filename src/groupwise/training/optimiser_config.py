"""The optimiser's numbers and the course of its learning rate. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import Field

from groupwise.config import Config
from groupwise.config.numbers import Count
from groupwise.schedule import Constant, NotNegative

Beta = Annotated[float, Field(ge=0, lt=1)]


@final
class OptimiserConfig(Config):
    """AdamW with decoupled weight decay.

    `lr(step) = learning_rate(step) * min(1, (step + 1) / warm_up_steps)`, with `step` counted from 0 inside the stage.

    Args:
        learning_rate: a number or a schedule over the steps of the stage.
        warm_up_steps: steps over which the rate rises from nearly nothing; 0 starts at the full rate.
        beta1, beta2: decay of the two moments.
        eps: added to the root of the second moment.
        weight_decay: shrinks matrices by `lr * weight_decay` a step; vectors (biases, norms) are left alone.
        moments: the moments at the start of a stage: `kept` goes on with the present ones, `fresh` forgets them. After
            a warm-up whose gradients were larger, kept moments slow a stage down until they have decayed, for some `1 /
            (1 - beta2)` steps.

    Example:
        >>> [round(OptimiserConfig(learning_rate=1.0, warm_up_steps=4).rate(step), 2) for step in range(5)]
        [0.25, 0.5, 0.75, 1.0, 1.0]

    Source: Loshchilov and Hutter 2019, arXiv 1711.05101.
    """

    kind: Literal["adamw"] = "adamw"
    learning_rate: NotNegative = Constant(value=1e-5)
    warm_up_steps: Count = 0
    beta1: Beta = 0.9
    beta2: Beta = 0.999
    eps: float = Field(default=1e-8, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    moments: Literal["kept", "fresh"] = "kept"

    def rate(self, step: int) -> float:
        """Returns the learning rate at a step of the stage.

        Args:
            step: number of the step inside the stage, from 0.
        """
        warm = min(1.0, (step + 1) / self.warm_up_steps) if self.warm_up_steps else 1.0
        return self.learning_rate.at(step) * warm
