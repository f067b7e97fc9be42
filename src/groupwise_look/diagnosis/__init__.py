"""Rules over metrics, used live by training and afterwards by `groupwise doctor`."""

from groupwise_look.diagnosis.finding import SEVERITIES, Finding, Severity
from groupwise_look.diagnosis.rule import RULES, Rule
from groupwise_look.diagnosis.series import WINDOW, Series
from groupwise_look.diagnosis.stage import Stage
from groupwise_look.diagnosis.watch import Findings, Headline, Watch, diagnose, headline

__all__ = [
    "RULES",
    "SEVERITIES",
    "WINDOW",
    "Finding",
    "Findings",
    "Headline",
    "Rule",
    "Series",
    "Severity",
    "Stage",
    "Watch",
    "diagnose",
    "headline",
]
