"""The headline of a diagnosis: the cause among the findings, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from groupwise_look.diagnosis.finding import SEVERITIES, Finding
from groupwise_look.diagnosis.rule import RULES

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
    explains, the one that explains most, then the most severe, then the earliest. Notes are no causes.

    Args:
        findings: of one run; the newest stage with a fault or a warning counts.

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
    # What broke the policy may have ended with it: it counts where it explains what still holds.
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


def _phrase(finding: Finding) -> str:
    return _BY_NAME[finding.rule].phrase if finding.rule in _BY_NAME else finding.rule.replace("_", " ")


def _causes(rule: str) -> Sequence[str]:
    return _BY_NAME[rule].follows if rule in _BY_NAME else ()


def _ancestors(rule: str) -> set[str]:
    """Returns every rule from which a rule may follow, directly or through others."""
    direct = set(_causes(rule))
    return direct.union(*(_ancestors(cause) for cause in direct)) if direct else direct
