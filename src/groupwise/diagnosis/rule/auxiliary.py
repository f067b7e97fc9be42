"""The terms beside the policy's: a supervised loss that does not fall, a consistency loss that creeps up."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number, rewards_rise
from groupwise.diagnosis.rule.evaluation import evaluations_rise
from groupwise.diagnosis.rule.learning_rate import stands_still
from groupwise.diagnosis.rule.supervised_loss import first_loss, last_loss
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage


def _supervised(stage: Stage) -> Seen | None:
    start, last = first_loss(stage, WINDOW), last_loss(stage, WINDOW)
    if start is None or last is None or stage.count("loss_sup") < 3 * WINDOW:
        return None
    rate = stage.last("learning_rate")
    if stage.first("reward", 1) is None:
        if start.above(last):
            return None
        sentence = (
            f"The supervised loss has not fallen in {stage.count('loss_sup')} steps: {number(start.mean)} at first,"
            f" {number(last.mean)} now."
        )
        return Seen(sentence, [start, last, *([rate] if rate else [])])
    if last.mean < 1.5 * start.mean or not last.above(start):
        return None
    sentence = f"Beside the policy term the supervised loss rose from {number(start.mean)} to {number(last.mean)}."
    # Where the reward rises, that is what the policy term was to do.
    return Seen(
        sentence,
        [start, last],
        severity="note" if rewards_rise(stage) or evaluations_rise(stage) else None,
        advice=(
            "Raise auxiliary.supervised, lower optimiser.learning_rate or policy_weight, or make the supervised stage"
            " longer."
        ),
    )


def _consistency(stage: Stage) -> Seen | None:
    last, before, earlier = (
        stage.last("loss_cons"),
        stage.before("loss_cons"),
        stage.before("loss_cons", skip=2 * WINDOW),
    )
    reward, reward_before = stage.last("reward"), stage.before("reward")
    # Every consistency loss begins at 0 and rises; where the policy has hardly moved that is all it is.
    if last is None or before is None or earlier is None or stands_still(stage):
        return None
    if (
        last.mean < 1.25 * before.mean
        or not last.above(before)
        or not before.above(earlier)
        or (reward and reward_before and reward.above(reward_before))
    ):
        return None
    sentence = (
        f"The consistency loss rose from {number(earlier.mean)} over {number(before.mean)} to {number(last.mean)} in"
        f" the last {3 * WINDOW} steps"
    )
    return Seen(
        f"{sentence}, and the reward did not rise with it.", [earlier, before, last, *([reward] if reward else [])]
    )


SUPERVISED_NOT_FALLING = Rule(
    "supervised_not_falling",
    "warning",
    "Why does my supervised loss not fall?",
    ("loss_sup", "lambda_sup", "learning_rate", "reward", "eval/NAME"),
    f"in a supervised stage of {3 * WINDOW} steps or more, the last {WINDOW} losses are not below the first"
    f" {WINDOW} by two standard errors; or, beside a policy term, the loss has risen by half (a note if the reward"
    " has risen, in training or in evaluations)",
    "The demonstrations are not being learnt. Steps are too small or too large, targets contradict each other, or"
    " the loss had its final value before the stage began. Beside a policy term, the reward pulls away from the"
    " demonstrations.",
    "Try an optimiser.learning_rate that is ten times higher and one that is ten times lower, a larger"
    " train.demonstrations_per_step, or more num_steps in the supervised stage. If the loss had its final value"
    " from the start, leave the stage out.",
    _supervised,
    phrase="the supervised loss does not fall",
    follows=("learning_rate_too_high", "not_finite"),
)
CONSISTENCY_CREEP = Rule(
    "consistency_creep",
    "warning",
    "Why does my consistency loss creep up?",
    ("loss_cons", "reward", "surprisal", "kl"),
    f"the consistency loss rises over three successive windows of {WINDOW} steps, by a quarter in the last, and"
    " the reward does not rise. The rule is silent if the policy stands still",
    "The outputs drift away from those of the reference and earn no more for it. Features collapse towards"
    " anything that the reward tolerates.",
    "Raise auxiliary.consistency, lower optimiser.learning_rate, set divergence.beta above 0, or take a"
    " reference that follows the policy: reference.kind = ema.",
    _consistency,
    phrase="the consistency loss rises",
)
