"""Runs the rules on a run: live, row by row, or afterwards on the rows of a run folder, with the same result. Also
finds the headline: the cause among the findings, with its consequences.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from groupwise_look.diagnosis.finding import SEVERITIES, Finding
from groupwise_look.diagnosis.rule import RULES
from groupwise_look.diagnosis.stage import Row, Stage

_BY_NAME = {rule.name: rule for rule in RULES}


@final
@dataclass(frozen=True)
class Headline:
    """The cause of what is wrong with a run.

    Args:
        cause: the finding that no other finding explains.
        consequences: the findings that follow from it, in the order in which they began.

    Example:
        >>> high = Finding("learning_rate_too_high", "warning", "grpo", 12, 40, "", "", "")
        >>> flat = Finding("all_flat", "fault", "grpo", 20, 40, "", "", "")
        >>> print(headline([flat, high]))
        The learning rate is too high since step 12; because of it: all groups are flat.
    """

    cause: Finding
    consequences: Sequence[Finding] = ()

    def __str__(self) -> str:
        phrase = _phrase(self.cause)
        text = f"{phrase[:1].upper()}{phrase[1:]} since step {self.cause.first_step}"
        if self.consequences:
            text += f"; because of it: {', '.join(map(_phrase, self.consequences))}"
        return f"{text}."

    def record(self) -> dict[str, Any]:
        """Returns the JSON-able record that `groupwise doctor --json` prints."""
        return {
            "rule": self.cause.rule,
            "since": self.cause.first_step,
            "because_of_it": [finding.rule for finding in self.consequences],
            "text": str(self),
        }


def headline(findings: Sequence[Finding]) -> Headline | None:
    """Finds the cause of the findings that still hold, among them and those that have ended: of those that none other
    explains, the one that explains most, then the most severe, then the earliest. Notes are not causes.

    Args:
        findings: the findings of one run; the newest stage with a fault or a warning counts.

    Returns:
        the headline; `None` where nothing is wrong.

    Example:
        >>> headline([]) is None
        True
    """
    alarms = [finding for finding in findings if finding.severity != "note"]
    holding = [finding for finding in alarms if finding.holds]
    if not holding:
        return None
    stage = max(holding, key=lambda finding: finding.last_step).stage
    holding = [finding for finding in holding if finding.stage == stage]
    # A fault that broke the policy may have ended since. It counts if it explains a finding that still holds.
    ended = [
        finding
        for finding in alarms
        if finding.stage == stage
        and not finding.holds
        and any(finding.rule in _ancestors(alarm.rule) for alarm in holding)
    ]
    alarms = [*holding, *ended]
    present = {finding.rule for finding in alarms}
    causes = [finding for finding in alarms if not present.intersection(_causes(finding.rule))]
    explained = {
        finding.rule: [alarm for alarm in holding if finding.rule in _ancestors(alarm.rule)] for finding in causes
    }
    cause = min(
        causes,
        key=lambda finding: (
            -len(explained[finding.rule]),
            SEVERITIES.index(finding.severity),
            finding.first_step,
        ),
    )
    return Headline(cause, tuple(sorted(explained[cause.rule], key=lambda finding: finding.first_step)))


class Findings(list[Finding]):
    """The findings of the doctor in a run; printed, the headline and one line a finding, causes first."""

    @property
    def headline(self) -> Headline | None:
        """The cause of what is wrong; `None` where nothing is."""
        return headline(self)

    def __repr__(self) -> str:
        lines = [f"{finding.severity} {finding.rule}: {finding.what} To do: {finding.advice}" for finding in self]
        first = [] if self.headline is None else [str(self.headline)]
        return "\n".join([*first, *lines]) or "Nothing wrong found."


def _phrase(finding: Finding) -> str:
    return _BY_NAME[finding.rule].phrase if finding.rule in _BY_NAME else finding.rule.replace("_", " ")


def _causes(rule: str) -> Sequence[str]:
    return _BY_NAME[rule].follows if rule in _BY_NAME else ()


def _ancestors(rule: str) -> set[str]:
    """Returns every rule from which a rule may follow, directly or through others."""
    direct = set(_causes(rule))
    return direct.union(*(_ancestors(cause) for cause in direct)) if direct else direct


EVERY = 5
"""Steps between two judgements, in the first five hundred of a stage."""
_SHARE = 100
"""In a longer stage, a judgement comes whenever the stage has grown by one part in this number, so the number of
judgements is bounded by the logarithm of the length of a run.
"""


def reads(metric: str) -> bool:
    """Returns whether any rule reads a metric.

    Example:
        >>> reads("reward"), reads("rewards/correct/std"), reads("seconds/update")
        (True, True, False)
    """
    return metric in _NAMES or metric.startswith(_PREFIXES)


_ENDED = {rule.name: rule.ended for rule in RULES}
_READS = frozenset(metric for rule in RULES for metric in rule.reads)
_PREFIXES = tuple({f"{metric.partition('/')[0]}/" for metric in _READS if any(map(str.isupper, metric.split("/")))})
_NAMES = frozenset(metric for metric in _READS if not metric.startswith(_PREFIXES))

_SMALLER = frozenset(rule.name for rule in RULES if rule.steps == "smaller")
_LARGER = frozenset(rule.name for rule in RULES if rule.steps == "larger")


@final
class Watch:
    """Collects rows and returns what is newly wrong; each rule reports once a stage. A run that was advised to take
    smaller steps is not advised to take larger ones.

    Args:
        settings: the resolved configuration, for rules that compare with it.

    Example:
        >>> watch = Watch()
        >>> rows = [{"step": step, "stage": "grpo", "frac_reward_zero_std": 1.0, "reward": 0.0} for step in range(30)]
        >>> [finding.rule for row in rows for finding in watch.see(row)]
        ['all_flat']
        >>> print(watch.headline)
        All groups are flat since step 19.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self._settings = settings or {}
        self._stage: Stage | None = None
        self._seen = 0
        self._found: dict[tuple[str, str], Finding] = {}
        self.headline: Headline | None = None
        """The cause of what is wrong in the current stage, with its consequences; notes do not count."""

    def see(self, row: Row) -> list[Finding]:
        """Takes one row of `metrics.jsonl`; judges after every fifth step, and more rarely in long stages.

        Args:
            row: the newest.

        Returns:
            what is newly wrong, notes included.
        """
        name = str(row.get("stage") or "")
        new: list[Finding] = []
        if self._stage is None or self._stage.name != name:
            new = self.judge()
            before, self._stage, self._seen = self._stage, Stage(name, self._settings, reads), 0
            if before is not None:
                self._stage.follow(before)
            self.headline = headline([finding for finding in self._found.values() if finding.stage == name])
        num_steps = self._stage.num_steps
        self._stage.add(row)
        interval = max(EVERY, self._stage.num_steps // _SHARE)
        if self._stage.num_steps > num_steps and self._stage.num_steps - self._seen >= interval:
            new += self.judge()
        return new

    def judge(self) -> list[Finding]:
        """Judges the rows as they are now.

        Returns:
            what is newly wrong.
        """
        if self._stage is None or self._stage.num_steps == self._seen:
            return []
        self._seen = self._stage.num_steps
        current = {finding.rule: finding for rule in RULES if (finding := rule.judge(self._stage)) is not None}
        if _SMALLER.intersection([*current, *(rule for _, rule in self._found)]):
            current = {rule: finding for rule, finding in current.items() if rule not in _LARGER}
            self._found = {key: finding for key, finding in self._found.items() if key[1] not in _LARGER}
        new = []
        for key, finding in self._found.items():
            if key[0] == self._stage.name and key[1] not in current and _has_ended(key[1], self._stage):
                self._found[key] = replace(finding, holds=False)
        for rule, finding in current.items():
            key = (self._stage.name, rule)
            if key in self._found:
                self._found[key] = replace(finding, first_step=self._found[key].first_step)
            else:
                self._found[key] = finding
                new.append(finding)
        self.headline = headline([finding for finding in self._found.values() if finding.stage == self._stage.name])
        return new

    @property
    def findings(self) -> Findings:
        """Every finding so far: the cause that the headline names, what follows from it, then the others, the worst
        first.
        """
        ordered = sorted(
            self._found.values(),
            key=lambda finding: (SEVERITIES.index(finding.severity), not finding.holds, finding.first_step),
        )
        found = headline(ordered)
        leading = [] if found is None else [found.cause, *found.consequences]
        return Findings([*leading, *(finding for finding in ordered if finding not in leading)])


def _has_ended(rule: str, stage: Stage) -> bool:
    """Returns whether what a rule saw before and does not see now is over."""
    ended = _ENDED[rule]
    return ended is None or ended(stage)


def diagnose(rows: Iterable[Row], settings: Mapping[str, Any] | None = None) -> Findings:
    """Returns every finding in a run: what live diagnosis would have said, with its first step and whether it still
    holds.

    Args:
        rows: the rows of `metrics.jsonl`, in order, of any stages.
        settings: the resolved configuration, as `config.json` holds it.

    Returns:
        findings, causes first.

    Example:
        >>> diagnose([])
        Nothing wrong found.
    """
    watch = Watch(settings)
    for row in rows:
        watch.see(row)
    watch.judge()
    return watch.findings
