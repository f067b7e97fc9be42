"""Rules over metrics, used live by training and afterwards by `groupwise doctor`."""

from groupwise.diagnosis.finding import SEVERITIES, Finding, Severity
from groupwise.diagnosis.headline import Headline, headline
from groupwise.diagnosis.rule import RULES, Rule
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage
from groupwise.diagnosis.watch import Watch, diagnose

__all__ = [
    "RULES",
    "SEVERITIES",
    "WINDOW",
    "Finding",
    "Headline",
    "Rule",
    "Series",
    "Severity",
    "Stage",
    "Watch",
    "diagnose",
    "headline",
]
