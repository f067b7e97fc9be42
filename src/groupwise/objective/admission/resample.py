"""Groups whose rewards differ, sampled until the batch is full: DAPO's dynamic sampling."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Bool
from torch import Tensor

from groupwise.config.numbers import Length
from groupwise.objective.grouped import Grouped
from groupwise.objective.slot import AdmissionSlot


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
