"""Running statistics of rewards: bias-corrected exponential averages, so that initial values fade."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from pydantic import model_validator

from groupwise.config import Config


@final
class Running(Config):
    """Exponential averages of the batch's mean, its standard deviation, and the standard deviation of rewards less
    their group's mean.

    `s <- decay s + (1 - decay) x`, `w <- decay w + (1 - decay)`, value `s / w`: the first batch gives exactly its own
    numbers.

    Example:
        >>> running = (
        ...     Running()
        ...     .follow(mean=1.0, std=2.0, centred_std=0.5, decay=0.9)
        ...     .follow(mean=1.0, std=4.0, centred_std=0.5, decay=0.9)
        ... )
        >>> round(running.mean, 6), round(running.std, 6), round(running.centred_std, 6)
        (1.0, 3.052632, 0.5)
    """

    mean_sum: float = 0.0
    std_sum: float = 0.0
    centred_std_sum: float = 0.0
    weight: float = 0.0

    @model_validator(mode="before")
    @classmethod
    def _with_centred(cls, table: Any) -> Any:
        # Older checkpoints hold a single deviation, by which their advantages were scaled: it is taken for both.
        if isinstance(table, Mapping) and "std_sum" in table:
            return {"centred_std_sum": table["std_sum"], **table}
        return table

    def follow(self, mean: float, std: float, centred_std: float, decay: float) -> Running:
        """Returns the average after one more batch."""
        return Running(
            mean_sum=decay * self.mean_sum + (1 - decay) * mean,
            std_sum=decay * self.std_sum + (1 - decay) * std,
            centred_std_sum=decay * self.centred_std_sum + (1 - decay) * centred_std,
            weight=decay * self.weight + (1 - decay),
        )

    @property
    def mean(self) -> float:
        return self.mean_sum / self.weight if self.weight > 0 else 0.0

    @property
    def std(self) -> float:
        return self.std_sum / self.weight if self.weight > 0 else 0.0

    @property
    def centred_std(self) -> float:
        return self.centred_std_sum / self.weight if self.weight > 0 else 0.0
