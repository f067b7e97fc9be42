"""Updates that are not made, change nothing, or are overwritten."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, first_of, need, newest, newest_of, present, rewards_rise, sees
from groupwise.diagnosis.rule.movement import CHANGE
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage


def _not_finite(stage: Stage) -> Seen | None:
    broken, taken, skipped = newest_of(stage, 5, "updates/not_finite", "updates/taken", "updates/skipped")
    count = sum(broken.values)
    if count == 0 or (share := count / sum(map(sum, (broken.values, taken.values, skipped.values)))) < 0.1:
        return None
    return Seen(
        f"{share:.0%} of the updates of the last 5 steps had a gradient that was NaN or infinite, and were left out.",
        [broken, taken],
    )


def _no_update(stage: Stage) -> Seen | None:
    taken = need(stage.last("updates/taken"))
    broken, flat = stage.last("updates/not_finite"), stage.last("frac_reward_zero_std")
    if sum(taken.values) > 0:
        return None
    because = "every gradient was zero"
    if broken and broken.mean > 0:
        because = "every gradient was NaN or infinite"
    elif flat and flat.mean > 0.95:
        because = "every group was flat"
    return Seen(f"None of the last {WINDOW} steps updated the policy: {because}.", [taken, *present(broken, flat)])


def _round_away(stage: Stage) -> Seen | None:
    stuck, rate = newest_of(stage, WINDOW, "weights/stuck", "learning_rate")
    if not 0.5 <= stuck.mean < 1 or min(rate.values) <= 0:
        return None
    return Seen(
        f"At a learning rate of {rate}, {stuck:.0%} of the weights with a gradient were the same after an update as"
        f" before, over the last {WINDOW} steps.",
        [stuck, rate],
        "note" if stage.windows.risen or rewards_rise(stage) else None,
    )


def _rewritten(stage: Stage) -> Seen | None:
    # The metric is there only where something wrote, so that no number of quiet steps takes it back.
    moved, change = first_of(stage, 3, "weights/rewritten", CHANGE)
    return Seen(
        f"Something moved the weights between updates, {stage.count('weights/rewritten')} times so far: the first 3"
        f" times by {moved:.1e} of their size, while an update itself moved them by {change:.1e}.",
        [moved, change],
    )


RULES = (
    Rule(
        "not_finite",
        "fault",
        "Why are there NaNs?",
        "updates/not_finite updates/taken updates/skipped",
        "over 5 steps at least a tenth of the updates had a gradient that was NaN or infinite",
        "Weights or activations have overflowed. Such updates are left out: the weights stay as they were, but the"
        " policy learns nothing.",
        'Lower optimiser.learning_rate or train.max_grad_norm, or set train.autocast = "none". Then continue with'
        " `groupwise resume` from a checkpoint before the first such update.",
        "gradients are not finite",
        [_not_finite],
        causes="learning_rate_too_high weight_decay_too_high",
        steps="smaller",
    ),
    Rule(
        "no_update",
        "fault",
        "Why does the model not change at all?",
        "updates/taken updates/not_finite frac_reward_zero_std",
        "none of 20 steps made an update",
        "The policy has not changed at all: there was nothing to learn from, or every gradient was unusable.",
        "If groups are flat, see all_flat. If gradients are not finite, see not_finite. Otherwise look at"
        " policy_weight, train.max_grad_norm and the schedules.",
        "nothing is updated",
        [_no_update],
        causes=(
            "all_flat not_finite reward_missing reward_constant reward_ignores_answer samples_alike admission_rejects"
        ),
    ),
    Rule(
        "weights_unchanged",
        "fault",
        "Why do updates change nothing?",
        "weights/change learning_rate",
        "in the last 10 steps with an update no weight changed, at a learning rate above 0",
        "The optimiser updates tensors that are not the model's, or each step is smaller than half a unit in the last"
        " place of the weights' dtype and rounds to nothing.",
        "Build the optimiser from the parameters of the model that samples. Keep the weights in float32"
        ' (domain.model.dtype = "float32"), or raise optimiser.learning_rate.',
        "updates change no weight",
        [
            sees(
                "The optimiser stepped at a learning rate of {rate}, and no weight changed in the last 10 steps with an"
                " update.",
                lambda s: max(s.changes.values) <= 1e-12 and min(s.rate.values) > 0,
                changes=newest(CHANGE, 10),
                rate=newest("learning_rate", 10),
            ),
        ],
    ),
    Rule(
        "steps_round_away",
        "warning",
        "Are my steps lost in the precision of the weights?",
        "weights/stuck learning_rate reward",
        "over 20 steps, at a learning rate above 0, updates left at least 50% of the weights with a gradient as they"
        " were, but not all (a note if the reward has risen)",
        "The steps of these weights were smaller than half the distance to the next number of their dtype, so only"
        " small weights are trained. (bfloat16 has eight bits: steps below 0.2 % of a weight may round away.)",
        'Keep the weights in float32 (domain.model.dtype = "float32") and compute in bfloat16 (train.autocast), or'
        " take ten times optimiser.learning_rate.",
        "steps are lost in the precision of the weights",
        [_round_away],
        causes="learning_rate_too_low",
        steps="larger",
    ),
    Rule(
        "weights_rewritten",
        "fault",
        "Why do updates get lost?",
        "weights/rewritten weights/change",
        "3 times, the weights at the start of an update differed from those at the end of the update before",
        "Something other than the optimiser writes weights: an average that an evaluation loads and does not take"
        " back, a callback, an engine, or another process that shares the memory. What updates learn is lost or mixed"
        " with it.",
        "Let your callbacks and engines copy weights instead of writing them. train.weight_average keeps an average"
        " beside the weights and evaluates it.",
        "something else writes the weights between updates",
        [_rewritten],
    ),
)
