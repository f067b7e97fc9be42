"""Run folders as they are found: whole, cut off, damaged, being written, or from another version. Everything that looks
back reads them here.
"""

from groupwise.runs.evaluated import EvaluatedOn
from groupwise.runs.find import find_runs
from groupwise.runs.folder import RunFolder
from groupwise.runs.lines import Lines, each_line, read_lines
from groupwise.runs.run import Run, is_number, read_run
from groupwise.runs.scores import reward_weights, score

__all__ = [
    "EvaluatedOn",
    "Lines",
    "Run",
    "RunFolder",
    "each_line",
    "find_runs",
    "is_number",
    "read_lines",
    "read_run",
    "reward_weights",
    "score",
]
