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
        f"Something moved the weights between updates, {stage.count('weights/rewritten')} times so far: the first"
        f" {_FEW} times by {moved.mean:.1e} of their size, while an update itself moved them by {change.mean:.1e}.",
        [moved, change],
    )


WEIGHTS_REWRITTEN = Rule(
    "weights_rewritten",
    "fault",
    "Why do updates get lost?",
    ("weights/rewritten", "weights/change"),
    f"{_FEW} times, the weights at the start of an update differed from those at the end of the update before",
    "Something other than the optimiser writes weights: an average that an evaluation loads and does not take"
    " back, a callback, an engine, or another process that shares the memory. What updates learn is lost or mixed"
    " with it.",
    "Let your callbacks and engines copy weights instead of writing them. train.weight_average keeps an average"
    " beside the weights and evaluates it.",
    _look,
    phrase="something else writes the weights between updates",
)
