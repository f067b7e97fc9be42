"""One thing a rule noticed about a run, with what shows it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

from groupwise_look.diagnosis.series import Series

Severity = Literal["fault", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("fault", "warning", "note")
"""Worst first. A fault: nothing is learned, or something else than was meant. A note answers a question; nothing needs
to be done.
"""

_MOST_POINTS = 8


@final
@dataclass(frozen=True)
class Finding:
    """A problem or a remark that a rule reports about a run: its evidence, its meaning and the advice.

    Args:
        severity: how bad it is.
        stage: the stage of the run in which it held.
        first_step, last_step: where it was first and where it was last seen.
        what: one sentence with the numbers that show it.
        means: what it means, one or two sentences.
        advice: what to change, by key.
        evidence: the values it was last judged by.
        holds: whether it still held at the stage's newest row.

    Example:
        >>> print(
        ...     Finding(
        ...         "no_update",
        ...         "fault",
        ...         "grpo",
        ...         20,
        ...         40,
        ...         "Nothing was updated.",
        ...         "No gradient.",
        ...         "Look at updates/not_finite.",
        ...     )
        ... )
        Nothing was updated. Look at updates/not_finite.
    """

    rule: str
    severity: Severity
    stage: str
    first_step: int
    last_step: int
    what: str
    means: str
    advice: str
    evidence: Sequence[Series] = field(default=())
    holds: bool = True

    def __str__(self) -> str:
        return f"{self.what} {self.advice}"

    def record(self) -> dict[str, Any]:
        """Returns the JSON-able record that `groupwise doctor --json` prints. Of long evidence, at most eight values
        are kept, the first and the last among them.

        Example:
            >>> found = Finding("a", "note", "grpo", 1, 9, "b", "c", "d", [Series("reward", list(range(9)), [0.5] * 9)])
            >>> found.record()["evidence"][0]["steps"]
            [0, 1, 2, 3, 5, 6, 7, 8]
        """
        evidence = [
            {
                "metric": series.metric,
                "mean": series.mean,
                **dict(zip(("steps", "values"), _thinned(series), strict=True)),
            }
            for series in self.evidence
        ]
        return {
            "rule": self.rule,
            "severity": self.severity,
            "stage": self.stage,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "holds": self.holds,
            "what": self.what,
            "means": self.means,
            "advice": self.advice,
            "evidence": evidence,
        }


def _thinned(series: Series) -> tuple[list[int], list[float]]:
    count = len(series)
    places = (
        range(count)
        if count <= _MOST_POINTS
        else [round(place * (count - 1) / (_MOST_POINTS - 1)) for place in range(_MOST_POINTS)]
    )
    return [series.steps[place] for place in places], [series.values[place] for place in places]
