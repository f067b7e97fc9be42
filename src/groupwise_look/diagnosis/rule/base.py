"""A rule: its words and its looks; and the predicates that looks share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal, TypeVar, final

from groupwise_look.diagnosis.finding import Finding, Severity
from groupwise_look.diagnosis.series import WINDOW, Series
from groupwise_look.diagnosis.stage import Stage

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Seen:
    """A rule's case that holds, with its numbers and its evidence.

    Args:
        case: name of the case in `rules.toml`, whose words replace the rule's; empty for the rule's own.
        evidence: the values that show it.
        severity: where it differs from the rule's own.
        values: name -> value, for the words.
    """

    case: str
    evidence: Sequence[Series]
    severity: Severity | None
    values: Mapping[str, Any]


def saw(case: str, evidence: Sequence[Series], severity: Severity | None = None, /, **values: Any) -> Seen:
    """Makes the result of a look; a series among the values is written as its mean."""
    return Seen(case, evidence, severity, values)


Look = Callable[[Stage], Seen | None]
"""Returns what a rule saw in a stage; `None` or `Absent` where it saw nothing."""
Stretch = Callable[[Stage], Series | None]


class Absent(Exception):
    """A look needs values that the stage does not have."""


@final
@dataclass(frozen=True)
class Rule:
    """A rule over the rows of a stage.

    Args:
        name: what findings and the documentation call it.
        looks: judge a stage, one after another; the first that sees something counts.
        question: what people ask who meet it.
        phrase: the finding as a clause, for a headline.
        reads: the metrics it reads.
        speaks: when it speaks, in words, with its thresholds.
        says: one sentence with the numbers that show it, a format string.
        means: what it means.
        advice: what to set, by key.
        cases: name of a case -> its own `says`, `means` and `advice`; those it lacks are the rule's.
        follows: names of rules whose findings may be the cause of this one.
        steps: what the advice does to the size of updates; a run is never told both, and smaller ones win, since that
            the policy moved too far is seen, while that it could move further is supposed.
        ended: returns whether what was seen is over. Unset, a finding is over where no look sees it any longer; a rule
            that shows the absence of something sets it, since noise alone may hide that again.

    Example:
        >>> words = {"question": "Why?", "phrase": "", "reads": [], "speaks": "", "means": "", "advice": ""}
        >>> Rule("silent", [lambda stage: None], "note", **words).judge(Stage()) is None
        True
    """

    name: str
    looks: Sequence[Look]
    severity: Severity
    question: str
    phrase: str
    reads: Sequence[str]
    speaks: str
    means: str
    advice: str
    says: str = ""
    cases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    follows: Sequence[str] = ()
    steps: Literal["smaller", "larger"] | None = None
    ended: Callable[[Stage], bool] | None = None

    def judge(self, stage: Stage) -> Finding | None:
        """Returns the finding of the rows so far, or `None`.

        Args:
            stage: rows in order, the newest last.
        """
        for look in self.looks:
            try:
                seen = look(stage)
            except Absent:
                continue
            if seen is not None:
                own = {
                    "says": self.says,
                    "means": self.means,
                    "advice": self.advice,
                    **(self.cases[seen.case] if seen.case else {}),
                }
                what, means, advice = (own[name].format(**seen.values) for name in ("says", "means", "advice"))
                severity, step = seen.severity or self.severity, stage.step
                return Finding(self.name, severity, stage.name, step, step, what, means, advice, tuple(seen.evidence))
        return None


def first(metric: str, count: int = WINDOW) -> Stretch:
    """The first values of a metric, for `sees`."""
    return lambda stage: stage.first(metric, count)


def newest(metric: str, count: int = WINDOW) -> Stretch:
    """The newest values of a metric, for `sees`."""
    return lambda stage: stage.last(metric, count)


def sees(when: Callable[[Any], bool], **stretches: Stretch) -> Look:
    """Makes a look from a predicate. It is silent if a stretch is absent.

    Args:
        when: takes the stretches by name and returns whether the rule speaks.
        stretches: what it looks at; all of them are evidence, and the rule's words may name them.

    Example:
        >>> look = sees(lambda s: s.last.mean > 0, last=newest("reward", 1))
        >>> stage = Stage()
        >>> stage.add({"step": 1, "reward": 0.5})
        >>> look(stage).values["last"].mean
        0.5
    """

    def look(stage: Stage) -> Seen | None:
        found = {name: need(stretch(stage)) for name, stretch in stretches.items()}
        return saw("", list(found.values()), **found) if when(SimpleNamespace(**found)) else None

    return look


def need(value: T | None) -> T:
    """Returns a value that a look needs; raises `Absent` if it is `None`."""
    if value is None:
        raise Absent
    return value


def first_of(stage: Stage, count: int, *metrics: str) -> list[Series]:
    """Returns the first `count` values of each metric; raises `Absent` where one has fewer."""
    return [need(stage.first(metric, count)) for metric in metrics]


def newest_of(stage: Stage, count: int, *metrics: str) -> list[Series]:
    """Returns the newest `count` values of each metric; raises `Absent` where one has fewer or has stopped."""
    return [need(stage.last(metric, count)) for metric in metrics]


def present(*series: Series | None) -> list[Series]:
    """Returns the series that the stage has."""
    return [each for each in series if each is not None]


def rewards_rise(stage: Stage, count: int = WINDOW) -> bool:
    """Returns whether the newest rewards are above those just before them, or above the first by more than noise.

    Args:
        count: how many steps are compared.
    """
    last, before, start = (
        stage.last("reward", count),
        stage.before("reward", count, count),
        stage.first("reward", count),
    )
    return bool(last and ((before and last.above(before)) or (start and last.above(start))))


def has_grown(start: Series | None, last: Series | None, times: float = 1.5) -> bool:
    """Returns whether a later stretch is at least this many times an earlier one, and above it beyond noise."""
    return start is not None and last is not None and last.mean >= times * start.mean and last.above(start)
