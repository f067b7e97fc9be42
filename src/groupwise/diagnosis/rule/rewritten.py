"""Weights that something else than the optimiser writes."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen
from groupwise.diagnosis.stage import Stage

_FEW = 3


def _look(stage: Stage) -> Seen | None:
    # The metric is there only where something wrote, so that no number of quiet steps takes it back.
    moved, change = stage.first("weights/rewritten", _FEW), stage.first("weights/change", _FEW)
    if moved is None or change is None:
        return None
    return Seen(
        f"Something moved the weights between updates, {stage.count('weights/rewritten')} times so far, by"
        f" {moved.mean:.1e} of their size in the first {_FEW}; an update itself moved them by {change.mean:.1e}.",
        [moved, change],
    )


WEIGHTS_REWRITTEN = Rule(
    "weights_rewritten",
    "fault",
    "Why do updates not stay?",
    ("weights/rewritten", "weights/change"),
    f"{_FEW} times the weights were other ones than those with which the update before had ended",
    "Something else than the optimiser writes weights: an average that is loaded for an evaluation and not taken back,"
    " a callback, an engine or another process that shares the memory. What updates learn is lost or mixed with it.",
    "Let callbacks and engines of yours copy weights instead of writing them; train.weight_average keeps an average"
    " beside the weights and evaluates it.",
    _look,
    phrase="something else writes the weights between updates",
)
