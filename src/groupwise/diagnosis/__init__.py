"""Rules over metrics, used live by training and afterwards by `groupwise doctor`."""

from groupwise.diagnosis.finding import SEVERITIES, Finding, Severity, worst
from groupwise.diagnosis.rule import RULES, Rule
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage
from groupwise.diagnosis.watch import Watch, diagnose

__all__ = [
    "RULES",
    "SEVERITIES",
    "WINDOW",
    "Finding",
    "Rule",
    "Series",
    "Severity",
    "Stage",
    "Watch",
    "diagnose",
    "worst",
]
