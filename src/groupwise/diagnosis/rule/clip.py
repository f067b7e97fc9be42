"""A clip that never acts, or nearly always."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage

_MOST = 0.5
"""A region of no width stops all that earlier updates of the batch moved as they should: half by chance, and more."""
_WHOLE = frozenset({"geometric", "arithmetic", "product"})
"""Kinds of ratio that are one number a member."""

_WHOLE_MEANS = (
    "These bounds are narrower than one update, so the later updates of a batch act only on members that the first one"
    " moved the wrong way. The policy learns mostly from the first update of each batch."
)
_WHOLE_ADVICE = (
    "You need not do anything. train.updates_per_batch = 1 gives nearly the same in less time. To learn more from each"
    " batch, lower optimiser.learning_rate, or widen trust.low and trust.high (GSPO's bounds are made for answers of"
    " hundreds of tokens)."
)


def _off_policy(stage: Stage) -> tuple[Series, float] | None:
    """Returns the share of clipped decisions, and the share of updates in which the ratio could differ from one."""
    clipped, share = stage.last("clip_ratio/region_mean"), stage.last("on_policy_share")
    return None if clipped is None or share is None or share.mean > 0.9 else (clipped, 1 - share.mean)


def _never(stage: Stage) -> Seen | None:
    off_policy = _off_policy(stage)
    if off_policy is None or max(off_policy[0].values) > 0:
        return None
    spread = [quantile for name in ("ratio/p1", "ratio/p99") if (quantile := stage.last(name)) is not None]
    sentence = (
        f"In the last {WINDOW} steps the clip touched no decision, although {off_policy[1]:.0%} of the updates were"
        " off-policy"
    )
    return Seen(
        sentence
        + (
            f" (1 % and 99 % of the ratios: {', '.join(number(quantile.mean) for quantile in spread)})."
            if spread
            else "."
        ),
        [off_policy[0], *spread],
    )


def _mostly(stage: Stage) -> Seen | None:
    off_policy = _off_policy(stage)
    # The first update on a batch has ratio one, and no clip acts on it.
    if off_policy is None or (share := min(1.0, off_policy[0].mean / off_policy[1])) <= _MOST:
        return None
    sentence = f"In the last {WINDOW} steps {share:.0%} of the decisions of off-policy updates were beyond the clip"
    kind = stage.setting("objective.ratio.kind")
    if kind not in _WHOLE or off_policy[0].mean > _MOST:
        return Seen(f"{sentence}, and {off_policy[0].mean:.0%} of all decisions.", [off_policy[0]])
    return Seen(
        f"{sentence}, and {off_policy[0].mean:.0%} of all decisions: ratio.kind = {kind} bounds a member as a whole.",
        [off_policy[0]],
        "note",
        _WHOLE_MEANS,
        _WHOLE_ADVICE,
    )


CLIP_NEVER_ACTS = Rule(
    "clip_never_acts",
    "note",
    "Does the clip do anything?",
    ("clip_ratio/region_mean", "on_policy_share", "ratio/p1", "ratio/p99"),
    f"no decision was clipped in {WINDOW} steps, although more than a tenth of the updates were off-policy",
    "The policy moves less within a batch than the bounds allow, so the trust region has no effect on this run.",
    "You need not do anything. If learning is slow, raise optimiser.learning_rate or train.updates_per_batch. For"
    " a region that acts, narrow trust.low and trust.high.",
    _never,
    phrase="the bounds never act",
    follows=("learning_rate_too_low", "weights_unchanged", "ratio_always_one"),
    steps="larger",
)
CLIP_MOSTLY_ACTS = Rule(
    "clip_mostly_acts",
    "warning",
    "Why is nearly everything clipped?",
    ("clip_ratio/region_mean", "on_policy_share"),
    f"over {WINDOW} steps more than {_MOST:.0%} of the decisions of off-policy updates are clipped. This is only"
    f" a note if a member has one ratio as a whole and at most {_MOST:.0%} of the decisions of all updates are clipped",
    "Most decisions give no gradient: the step is too large for the bounds, or the bounds do not fit the"
    " scale of the log-prob, as with decisions of many dimensions.",
    "Lower optimiser.learning_rate or train.updates_per_batch, widen trust.low and trust.high, or set another"
    " domain.reduce for many-dimensional decisions.",
    _mostly,
    phrase="nearly everything is clipped",
    follows=("learning_rate_too_high", "ratio_not_one"),
    steps="smaller",
)
