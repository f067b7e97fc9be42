"""A rule: a question that people ask, the metrics it reads, its thresholds, its meaning and its advice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, final

from groupwise_look.diagnosis.finding import Finding, Severity
from groupwise_look.diagnosis.series import WINDOW, Series
from groupwise_look.diagnosis.stage import Stage


@final
@dataclass(frozen=True)
class Seen:
    """The sentence and the evidence of a rule that fired.

    Args:
        what: one sentence with numbers.
        evidence: the values that show it.
        severity: where it differs from the rule's own.
        means, advice: where they differ from the rule's own.
    """

    what: str
    evidence: Sequence[Series]
    severity: Severity | None = None
    means: str = ""
    advice: str = ""


@final
@dataclass(frozen=True)
class Rule:
    """A rule over the rows of a stage.

    Args:
        name: what findings and the documentation call it.
        question: what people ask who meet it.
        reads: the metrics it reads.
        speaks: when it speaks, in words, with its thresholds.
        advice: what to set, by key.
        look: returns the sentence and evidence of a stage on which the rule fires, otherwise `None`.
        phrase: the finding as a clause, for a headline.
        follows: names of rules whose findings may be the cause of this one.
        steps: what the advice does to the size of updates; a run is never told both, and smaller ones win, since that
            the policy moved too far is seen, while that it could move further is supposed.
        ended: returns whether what was seen is over. Unset, a finding is over where `look` no longer sees it; a rule
            that shows the absence of something sets it, since noise alone may hide that again.

    Example:
        >>> silent = Rule("silent", "note", "Why?", ("reward",), "never", "nothing", "nothing", lambda stage: None)
        >>> silent.judge(Stage()) is None
        True
    """

    name: str
    severity: Severity
    question: str
    reads: tuple[str, ...]
    speaks: str
    means: str
    advice: str
    look: Callable[[Stage], Seen | None]
    phrase: str = ""
    follows: tuple[str, ...] = ()
    steps: Literal["smaller", "larger"] | None = None
    ended: Callable[[Stage], bool] | None = None

    def judge(self, stage: Stage) -> Finding | None:
        """Returns the finding of the rows so far, or `None`.

        Args:
            stage: rows in order, the newest last.
        """
        seen = self.look(stage)
        if seen is None:
            return None
        severity, means, advice = seen.severity or self.severity, seen.means or self.means, seen.advice or self.advice
        return Finding(
            self.name, severity, stage.name, stage.step, stage.step, seen.what, means, advice, tuple(seen.evidence)
        )


def number(value: float) -> str:
    """Writes a number with three digits, for a sentence.

    Example:
        >>> number(0.12345), number(1e-7)
        ('0.123', '1e-07')
    """
    return f"{value:.3g}"


def rewards_rise(stage: Stage, count: int = WINDOW) -> bool:
    """Returns whether the newest rewards lie above those just before them, or above the first by more than noise.

    Args:
        count: how many steps are compared.
    """
    last, before, start = (
        stage.last("reward", count),
        stage.before("reward", count, count),
        stage.first("reward", count),
    )
    return bool(last and ((before and last.above(before)) or (start and last.above(start))))
