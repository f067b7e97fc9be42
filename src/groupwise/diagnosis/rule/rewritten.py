"""Weights that something else than the optimiser writes."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_FEW = 5


def _look(stage: Stage) -> Seen | None:
    moved, change = stage.last("weights/rewritten", _FEW), stage.last("weights/change", _FEW)
    if moved is None or change is None or stage.step - moved.steps[0] >= WINDOW:
        return None
    return Seen(
        f"Between updates the weights moved by {moved.mean:.1e} of their size, in {_FEW} of the last"
        f" {stage.step - moved.steps[0] + 1} steps; an update itself moved them by {change.mean:.1e}.",
        [moved, change],
    )


WEIGHTS_REWRITTEN = Rule(
    "weights_rewritten",
    "fault",
    "Why do updates not stay?",
    ("weights/rewritten", "weights/change"),
    f"in {_FEW} of {WINDOW} steps or fewer the weights were other ones than those with which the update before ended",
    "Something else than the optimiser writes weights: an average that is loaded for an evaluation and not taken back,"
    " a callback, an engine or another process that shares the memory. What updates learn is lost or mixed with it.",
    "Let callbacks and engines of yours copy weights instead of writing them; train.weight_average keeps an average"
    " beside the weights and evaluates it.",
    _look,
    phrase="something else writes the weights between updates",
)
