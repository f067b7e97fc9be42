"""Log-probs that differ from those recorded while sampling before any update was made, or do not after one."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.stage import Stage

_FEW = 3
_WIDTH = 0.2
_OFF_POLICY = 0.9
_EQUAL = 0.99
_MOVED = 1e-5
_SURE = 1e-3
"""Nats of surprisal below which log-probs may be exactly 0 before an update and after it."""
_ROUNDING = 1e-6
"""Nats by which fp32 rounds a log-prob of up to ten nats, whose unit in the last place is 9.5e-7. No two passes agree
better, whatever the width of the trust region.
"""


def _width(stage: Stage) -> float:
    bounds = [
        bound
        for side in ("low", "high")
        if isinstance(bound := stage.setting(f"objective.trust.{side}"), int | float) and bound > 0
    ]
    return min(bounds, default=_WIDTH)


def _look(stage: Stage) -> Seen | None:
    gap, width = stage.last("sampling/rescoring_difference/mean", _FEW), _width(stage)
    if gap is not None and gap.mean > max(0.1 * width, _ROUNDING):
        sentence = (
            f"Scored again before its first update, the policy is {number(gap.mean)} nats a decision away from what was"
            " recorded while it sampled"
        )
        return Seen(f"{sentence}; the trust region is {number(width)} wide.", [gap])
    share, low, high = (stage.last(name, _FEW) for name in ("on_policy_share", "ratio/p1", "ratio/p99"))
    if share and low and high and share.mean == 1 and (high.mean > 1.05 or low.mean < 0.95):
        sentence = (
            f"With one update a batch every ratio should be 1, but 1 % of them are below {number(low.mean)} and 1 %"
            f" above {number(high.mean)}."
        )
        return Seen(sentence, [low, high])
    return None


def _always(stage: Stage) -> Seen | None:
    names = ("on_policy_share", "on_policy_fraction", "weights/change")
    share, equal, change = (stage.last(name, _FEW) for name in names)
    if share is None or equal is None or change is None:
        return None
    surprisal = stage.last("surprisal", _FEW)
    if surprisal is not None and surprisal.mean < _SURE:
        return None
    if max(share.values) > _OFF_POLICY or min(equal.values) < _EQUAL or min(change.values) < _MOVED:
        return None
    return Seen(
        f"{1 - share.mean:.0%} of the updates were made after another on the same batch had changed the weights by"
        f" {number(change.mean)} of their size, and {equal.mean:.0%} of the log-ratios are exactly 0.",
        [share, equal, change],
    )


RATIO_NOT_ONE = Rule(
    "ratio_not_one",
    "fault",
    "Why is the ratio not 1 at the first update?",
    ("sampling/rescoring_difference/mean", "on_policy_share", "ratio/p1", "ratio/p99"),
    f"over {_FEW} steps the log-probs of the first update differ from the recorded ones by more than fp32 rounding"
    f" ({_ROUNDING:g}) and by more than a tenth of the trust region's width (0.2 if it has none); or, with one"
    " update a batch, 1 % of the ratios are below 0.95, or 1 % above 1.05",
    "The sampler and the trainer do not have the same policy. The causes are dropout while training, another"
    " temperature or template, stale weights in a server, or lower precision. Every ratio is wrong by this"
    " difference, so the clip acts on the wrong decisions.",
    "Set dropout to 0, score at the sampling temperature, send the sampler the newest weights, or set"
    " train.autocast = none. Or correct for the difference: method=NAME+tis.",
    _look,
    phrase="the first update is not on the policy that sampled",
    follows=("generator_drifts",),
)
RATIO_ALWAYS_ONE = Rule(
    "ratio_always_one",
    "fault",
    "Why is the ratio 1 in every update?",
    ("on_policy_share", "on_policy_fraction", "weights/change", "surprisal"),
    f"in each of the last {_FEW} steps at most {_OFF_POLICY:.0%} of the updates were the first on their batch, at least"
    f" {_EQUAL:.0%} of the log-ratios were exactly 0, and updates changed the weights by {_MOVED:g} of their size"
    f" (silent at a surprisal below {_SURE:g} nats a decision, where a sure policy's log-probs stay exactly 0)",
    "The ratio compares the policy with itself: the old log-probs are not those of the time of sampling, but are"
    " computed anew in every update. So no trust region acts, and nothing bounds how far later updates of a batch"
    " move the policy.",
    "Compute the log-probs of the samples once, before the first update on them, and compare every update with"
    " these. Or set train.updates_per_batch = 1 and train.minibatches = 1.",
    _always,
    phrase="the ratio compares the policy with itself",
    # What later updates do without a bound may have ended them: a stage of flat groups has none.
    ended=lambda stage: False,
)
