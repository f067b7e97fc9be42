"""Run folders in whatever state they are: whole, cut off, damaged, being written, or from another version. All code
that looks back at a run reads its folder through this room.
"""

from groupwise.runs.evaluated_on import EvaluatedOn
from groupwise.runs.find import find_runs
from groupwise.runs.folder import RunFolder
from groupwise.runs.lines import Lines, each_line, read_lines
from groupwise.runs.run import Run, is_number, is_training, read_run
from groupwise.runs.scores import reward_weights, score, split_metric

__all__ = [
    "EvaluatedOn",
    "Lines",
    "Run",
    "RunFolder",
    "each_line",
    "find_runs",
    "is_number",
    "is_training",
    "read_lines",
    "read_run",
    "reward_weights",
    "score",
    "split_metric",
]
