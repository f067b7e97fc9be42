"""The optimiser and the course of its learning rate. Imports no torch unless a class of torch's is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, final

from pydantic import Field, field_validator, model_validator

from groupwise.config import Config, InModule, may_run
from groupwise.config.errors import Count
from groupwise.learner.optimiser_source import OptimiserSource
from groupwise.schedule import Constant, NotNegative

Beta = Annotated[float, Field(ge=0, lt=1)]


class Steps(Config):
    """The course of the learning rate, whatever the optimiser.

    `lr(step) = learning_rate(step) * min(1, (step + 1) / warm_up_steps)`, with `step` counted from 0 inside the stage.

    Args:
        learning_rate: a number or a schedule over the steps of the stage.
        warm_up_steps: steps over which the rate rises from nearly nothing; 0 starts at the full rate. On a falling
            schedule the peak is not reached; the schedule `kind = "warm_up"` falls from its peak on.
        moments: the optimiser's state at the start of a stage: `kept` continues with the present one, `fresh` forgets
            it. After a warm-up whose gradients were larger, kept moments slow a stage down until they have decayed, for
            some `1 / (1 - beta2)` steps.
    """

    learning_rate: NotNegative = Constant(value=1e-5)
    warm_up_steps: Count = 0
    moments: Literal["kept", "fresh"] = "kept"

    def rate(self, step: int) -> float:
        """Returns the learning rate at a step of the stage.

        Args:
            step: number of the step inside the stage, from 0.
        """
        warm = min(1.0, (step + 1) / self.warm_up_steps) if self.warm_up_steps else 1.0
        return self.learning_rate.at(step) * warm


@final
class OptimiserConfig(Steps):
    """AdamW with decoupled weight decay.

    Args:
        beta1, beta2: decay of the two moments.
        eps: added to the root of the second moment.
        weight_decay: shrinks matrices by `lr * weight_decay` a step; vectors (biases, norms) are left alone.

    Example:
        >>> [round(OptimiserConfig(learning_rate=1.0, warm_up_steps=4).rate(step), 2) for step in range(5)]
        [0.25, 0.5, 0.75, 1.0, 1.0]

    Source: Loshchilov and Hutter 2019, arXiv 1711.05101.
    """

    kind: Literal["adamw"] = "adamw"
    beta1: Beta = 0.9
    beta2: Beta = 0.999
    eps: float = Field(default=1e-8, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)

    @property
    def source(self) -> None:
        """Returns None: the learner uses its own optimiser."""
        return None


@final
class OptimiserFromPath(Steps):
    """Any optimiser of torch's interface by its import path.

    The class is called with the trained parameters in two groups, matrices and vectors, and with `arguments`; a weight
    decay is set to 0 for the vectors. Its rate is set every step. A stage with another optimiser than the one before
    begins with an empty state.

    Args:
        path: `package.module:Class`, a subclass of `torch.optim.Optimizer`; the module may be in the working
            directory.
        arguments: further arguments of the class, by name, without `params` and `lr`.

    Example:
        >>> OptimiserFromPath(path="torch.optim:SGD", arguments={"momentum": 0.9}).source.path
        'torch.optim:SGD'
    """

    kind: Literal["callable"] = "callable"
    path: InModule
    arguments: Mapping[str, Any] = Field(default_factory=dict)

    @field_validator("arguments")
    @classmethod
    def _without_the_rate(cls, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        for name, advice in (("lr", "write optimiser.learning_rate"), ("params", "leave it out")):
            if name in arguments:
                raise ValueError(f"{name} is set by the run; {advice}")
        return arguments

    @model_validator(mode="after")
    def _is_an_optimiser(self) -> OptimiserFromPath:
        if may_run(self.path):
            from groupwise.learner.local import optimiser_class

            optimiser_class(self.path)
        return self

    @property
    def source(self) -> OptimiserSource:
        """The class and its arguments, as a learner takes them."""
        return OptimiserSource(str(self.path), dict(self.arguments))


AnyOptimiser = Annotated[OptimiserConfig | OptimiserFromPath, Field(discriminator="kind")]
"""The configuration of any optimiser, distinguished by `kind`; AdamW where none is stated."""
