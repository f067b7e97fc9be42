"""The class of an optimiser that is named from outside. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class OptimiserSource:
    """The class of an optimiser and its arguments.

    Args:
        path: `package.module:Class`, a subclass of `torch.optim.Optimizer`.
        arguments: arguments of the class other than the parameters and the rate.
    """

    path: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
