"""The value of the policy loss: it says little about learning, and rules name the cases in which it does."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_FEW = 5


def _zero(stage: Stage) -> Seen | None:
    loss, norm, spread = (
        stage.first("loss_pg", _FEW),
        stage.first("grad_norm", _FEW),
        stage.first("advantages_std", _FEW),
    )
    if (
        loss is None
        or norm is None
        or spread is None
        or min(norm.values) <= 0
        or spread.mean <= 0
        or max(map(abs, loss.values)) > 1e-3 * spread.mean
    ):
        return None
    sentence = (
        f"The policy loss of the first {_FEW} steps is {number(max(map(abs, loss.values)))} at most in size, with a"
        f" gradient of norm {number(norm.mean)}."
    )
    return Seen(sentence, [loss, norm])


def _grows(stage: Stage) -> Seen | None:
    ends, share, spread = stage.ends("loss_pg"), stage.last("on_policy_share"), stage.last("advantages_std")
    if ends is None or share is None or spread is None or share.mean > 0.9:
        return None
    start, last = ends
    if (
        last.mean <= 0
        or last.mean < 3 * abs(start.mean)
        or last.mean - start.mean < 0.05 * spread.mean
        or not last.above(start, errors=4.0)
    ):
        return None
    return Seen(f"The policy loss went from {number(start.mean)} to {number(last.mean)}.", [start, last])


LOSS_ZERO = Rule(
    "loss_zero",
    "note",
    "Why is my loss zero at the start?",
    ("loss_pg", "grad_norm", "advantages_std"),
    f"the policy loss of each of the first {_FEW} steps is below a thousandth of the advantages' spread, and the"
    " gradient is not zero",
    "A loss of zero is right here. Before the first update every ratio is 1, so the loss is minus the mean"
    " advantage, and the advantages of a group sum to zero. The gradient is not zero, since each log-prob is"
    " multiplied by the advantage of its own member. The value of the loss says nothing about learning: watch the"
    " reward and the score of the evaluations.",
    "Nothing.",
    _zero,
    phrase="the loss is zero",
)
POLICY_LOSS_GROWS = Rule(
    "policy_loss_grows",
    "warning",
    "Why does my policy loss stay positive and grow?",
    ("loss_pg", "on_policy_share", "advantages_std"),
    f"updates are off-policy, and the loss of the last {WINDOW} steps is positive, three times that of the first"
    f" {WINDOW}, and greater by at least a twentieth of the advantages' spread",
    "The later updates of a batch make its good members less probable or its bad members more probable: the"
    " steps overshoot.",
    "Lower optimiser.learning_rate or train.max_grad_norm, narrow trust.low and trust.high, or take fewer"
    " train.updates_per_batch.",
    _grows,
    phrase="the policy loss grows",
    follows=("learning_rate_too_high", "advantage_scale"),
    steps="smaller",
)
