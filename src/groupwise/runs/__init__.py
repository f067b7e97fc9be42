"""Run folders in whatever state they are: whole, cut off, damaged, being written, or from another version. All code
that looks back at a run reads its folder through this room.
"""

# ruff: noqa: F401
from groupwise.runs.folder import Lines, RunFolder, each_line, find_runs, read_lines
from groupwise.runs.run import EvaluatedOn, Run, is_number, is_training, read_run, reward_weights, score, split_metric
