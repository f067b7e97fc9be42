"""Which prompts have earned one value alone, however often they were drawn; saved with the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

_VISITS = 3
"""Draws of a prompt before it is counted."""
_NEAR = 1e-9


@final
class PromptValues:
    """How often each prompt of a stage was drawn, and the one value that all its members earned.

    All processes hold the same values: they are gathered before they are added.

    Example:
        >>> values = PromptValues()
        >>> for step in range(3):
        ...     values.add([(7, [0.0, 0.0]), (2, [0.0, float(step)])])
        >>> values.metrics()
        {'prompts/revisited': 2.0, 'prompts/one_value': 0.5}
    """

    def __init__(self, values: Mapping[int, tuple[int, float | None]] | None = None) -> None:
        self._values: dict[int, tuple[int, float | None]] = dict(values or {})
        counted = [value for visits, value in self._values.values() if visits >= _VISITS]
        self._num_revisited, self._num_single = len(counted), sum(value is not None for value in counted)

    def add(self, earned: Iterable[tuple[int, Sequence[float]]]) -> None:
        """Adds the rewards of a step.

        Args:
            earned: place of a prompt -> rewards of its members, in one entry a draw.
        """
        for place, rewards in earned:
            if not rewards:
                continue
            visits, value = self._values.get(place, (0, rewards[0]))
            if visits >= _VISITS:
                self._num_revisited, self._num_single = self._num_revisited - 1, self._num_single - (value is not None)
            if value is not None and any(abs(reward - value) > _NEAR * max(1.0, abs(value)) for reward in rewards):
                value = None
            self._values[place] = visits + 1, value
            if visits + 1 >= _VISITS:
                self._num_revisited, self._num_single = self._num_revisited + 1, self._num_single + (value is not None)

    def metrics(self) -> dict[str, float]:
        """Returns how many prompts were drawn three times or more, and the share of them that earned one value alone;
        nothing before there is one.
        """
        if not self._num_revisited:
            return {}
        return {
            "prompts/revisited": float(self._num_revisited),
            "prompts/one_value": self._num_single / self._num_revisited,
        }

    def record(self) -> dict[str, Any]:
        """Returns plain values for a checkpoint."""
        return {str(place): list(entry) for place, entry in self._values.items()}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> PromptValues:
        """Restores the values of `record`.

        Args:
            record: the return value of the method `record`.

        Example:
            >>> values = PromptValues({7: (3, 0.5)})
            >>> PromptValues.from_record(values.record()).metrics() == values.metrics()
            True
        """
        return PromptValues({int(place): (int(visits), value) for place, (visits, value) in record.items()})
