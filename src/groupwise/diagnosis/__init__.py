"""Rules over metrics, used live by training and afterwards by `groupwise doctor`."""

from groupwise.diagnosis.finding import Finding, column
from groupwise.diagnosis.rules import RULES, WINDOW, diagnose
from groupwise.diagnosis.watch import Watch

__all__ = ["RULES", "WINDOW", "Finding", "Watch", "column", "diagnose"]
