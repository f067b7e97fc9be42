"""How far updates have moved the weights, for rules that ask whether steps are too large or too small."""

from __future__ import annotations

from collections.abc import Callable

from groupwise_look.diagnosis.rule.base import Rule, Seen, number, rewards_rise
from groupwise_look.diagnosis.rule.policy import unused
from groupwise_look.diagnosis.rule.rising import EVALUATION_ERRORS, evaluations_rise, evaluations_stay, luck
from groupwise_look.diagnosis.series import WINDOW, Series
from groupwise_look.diagnosis.stage import PLAIN_SUPERVISED, Stage

CHANGE = "weights/change"
_DWINDLED = 0.1
_AS_LARGE = 0.5


def largest_change(stage: Stage, count: int) -> Series | None:
    """Returns the larger of the first and the newest relative changes of the weights by an update.

    Args:
        stage: the rows.
        count: steps at either end; fewer where fewer made an update, as where the first one broke everything.
    """
    count = min(count, stage.count(CHANGE))
    if count == 0:
        return None
    ends = [series for series in (stage.first(CHANGE, count), stage.last(CHANGE, count)) if series is not None]
    return max(ends, key=lambda series: series.mean, default=None)


def path(stage: Stage, count: int) -> float | None:
    """Returns about how long the way of the weights has been, relative to their size: the mean change of an update
    times the number of steps that made one.

    Args:
        stage: the rows.
        count: steps at either end from which the mean is taken.
    """
    first, last = stage.first(CHANGE, count), stage.last(CHANGE, count)
    if first is None or last is None:
        return None
    return (first.mean + last.mean) / 2 * stage.count(CHANGE)


def dwindled(stage: Stage, count: int) -> tuple[Series, Series] | None:
    """Returns the first and the newest changes of the weights by an update, where those for one learning rate have
    become a tenth of what they were, and the gradient is at least half as large as it was; otherwise `None`.

    An optimiser that divides by the size of its gradients makes equal steps of equal gradients. Where steps dwindle,
    it divides by the larger gradients of an earlier stage, and the first steps were those of its momentum.

    Args:
        stage: the rows.
        count: steps at either end.
    """
    change, rate, gradient = (stage.ends(name, count) for name in (CHANGE, "learning_rate", "grad_norm"))
    if change is None or rate is None or gradient is None or min(rate[1].values) <= 0:
        return None
    if change[0].mean <= 0 or rate[0].mean <= 0:
        return None
    share = (change[1].mean / rate[1].mean) / (change[0].mean / rate[0].mean)
    return change if share < _DWINDLED and gradient[1].mean >= _AS_LARGE * gradient[0].mean else None


# Optimiser steps that are not made.


def _none(stage: Stage) -> Seen | None:
    taken, broken, flat = (stage.last(name) for name in ("updates/taken", "updates/not_finite", "frac_reward_zero_std"))
    if taken is None or sum(taken.values) > 0:
        return None
    because = (
        "every gradient was NaN or infinite"
        if broken and broken.mean > 0
        else "every group was flat"
        if flat and flat.mean > 0.95
        else "every gradient was zero"
    )
    return Seen(
        f"None of the last {WINDOW} steps updated the policy: {because}.",
        [taken, *(series for series in (broken, flat) if series)],
    )


def _not_finite(stage: Stage) -> Seen | None:
    broken, taken, skipped = (
        stage.last(name, 5) for name in ("updates/not_finite", "updates/taken", "updates/skipped")
    )
    if broken is None or taken is None or skipped is None or sum(broken.values) == 0:
        return None
    share = sum(broken.values) / sum(map(sum, (broken.values, taken.values, skipped.values)))
    if share < 0.1:
        return None
    return Seen(
        f"{share:.0%} of the updates of the last 5 steps had a gradient that was NaN or infinite, and were left out.",
        [broken, taken],
    )


NO_UPDATE = Rule(
    "no_update",
    "fault",
    "Why does the model not change at all?",
    ("updates/taken", "updates/not_finite", "frac_reward_zero_std"),
    f"none of {WINDOW} steps made an update",
    "The policy has not changed at all: there was nothing to learn from, or every gradient was unusable.",
    "If groups are flat, see all_flat. If gradients are not finite, see not_finite. Otherwise look at"
    " policy_weight, train.max_grad_norm and the schedules.",
    _none,
    phrase="nothing is updated",
    follows=(
        "all_flat",
        "not_finite",
        "reward_missing",
        "reward_constant",
        "reward_ignores_answer",
        "samples_alike",
        "admission_rejects",
    ),
)
NOT_FINITE = Rule(
    "not_finite",
    "fault",
    "Why are there NaNs?",
    ("updates/not_finite", "updates/taken", "updates/skipped"),
    "over 5 steps at least a tenth of the updates had a gradient that was NaN or infinite",
    "Weights or activations have overflowed. Such updates are left out: the weights stay as they were, but"
    " the policy learns nothing.",
    'Lower optimiser.learning_rate or train.max_grad_norm, or set train.autocast = "none". Then continue with'
    " `groupwise resume` from a checkpoint before the first such update.",
    _not_finite,
    phrase="gradients are not finite",
    follows=("learning_rate_too_high", "weight_decay_too_high"),
    steps="smaller",
)


# The value of the policy loss: it says little about learning, and rules name the cases in which it does.

_LOSS_FEW = 5


def _zero(stage: Stage) -> Seen | None:
    loss, norm, spread = (
        stage.first("loss_pg", _LOSS_FEW),
        stage.first("grad_norm", _LOSS_FEW),
        stage.first("advantages_std", _LOSS_FEW),
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
        f"The policy loss of the first {_LOSS_FEW} steps is {number(max(map(abs, loss.values)))} at most in size,"
        " with a"
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
    f"the policy loss of each of the first {_LOSS_FEW} steps is below a thousandth of the advantages' spread, and the"
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


# The supervised loss beside a policy term, whatever a schedule does to its weight.


def first_loss(stage: Stage, count: int) -> Series | None:
    """Returns the first values of the supervised loss without its coefficient; `None` where there are fewer.

    Args:
        stage: of the losses.
        count: how many.
    """
    return _plain(stage, stage.first, count)


def last_loss(stage: Stage, count: int) -> Series | None:
    """Returns the newest values of the supervised loss without its coefficient; arguments as of `first_loss`."""
    return _plain(stage, stage.last, count)


def _plain(stage: Stage, values: Callable[[str, int], Series | None], count: int) -> Series | None:
    loss = values("loss_sup", count)
    if not stage.count("lambda_sup"):
        return loss
    plain = values(PLAIN_SUPERVISED, count)
    return plain if loss and plain and loss.steps == plain.steps else None


# Steps that are too large, or too small to move the policy.

_LEARNING_RATE_FEW = 5
_DOUBLED = 2.0
_FELL = 0.5
_WORSE = (
    "A step of the right size lowers the loss. These steps raise every term of it, and they grow. They overshoot, or"
    " they follow the gradient of something else."
)
_CHECK = (
    "Take a tenth of optimiser.learning_rate, or set optimiser.warm_up_steps. If that does not help, compute the"
    " gradient of one batch twice from the same weights: both must be equal."
)
UNMOVED = 1e-3
"""Nats a decision from the reference, below which a policy has hardly moved."""
_BREAKS_LOSS = 0.1
_BREAKS = 0.05
"""Relative change of the weights by an update: what no policy survives, and what some do not."""
_NOWHERE = 3e-4
_SHORT = 2e-3
_SOMEWHERE = 1e-2
"""Relative length of the way of the weights: below the first nothing can have been learnt, below the second nothing
that is seen in no other number, and above the third they have moved.
"""


def stands_still(stage: Stage) -> bool:
    """Returns whether most steps make updates and the policy is where it was: its surprisal has changed by less than 2
    % and less than two standard errors, and its weights have not gone a hundredth of their size. A policy may be
    another one at the same surprisal.

    Densities have no surprisal: there the KL alone tells, where there is one.
    """
    ends, taken, kl = stage.ends("surprisal"), stage.last("updates/taken"), stage.last("kl")
    if (
        taken is None
        or sum(value > 0 for value in taken.values) < len(taken) / 2
        or (kl is not None and abs(kl.mean) >= UNMOVED)
        or _moved(stage)
    ):
        return False
    if ends is None:
        return kl is not None
    start, last = ends
    return abs(last.mean - start.mean) <= 0.02 * abs(start.mean) and not last.above(start) and not start.above(last)


def _high(stage: Stage) -> Seen | None:
    sample, high, low, share = (
        stage.last(name, _LEARNING_RATE_FEW)
        for name in ("effective_sample_size", "ratio/p99", "ratio/p1", "on_policy_share")
    )
    # Off-policy: what one batch's updates do to the ratios of that very batch.
    if (
        sample
        and high
        and low
        and share
        and share.mean < 0.9
        and (sample.mean < 0.5 or (sample.mean < 0.8 and (high.mean > 3 or low.mean < 1 / 3)))
    ):
        sentence = (
            f"Within one batch the ratios range from {number(low.mean)} to {number(high.mean)} (quantiles of 1 % and"
            f" 99 %), and the effective sample size is {number(sample.mean)}."
        )
        return Seen(sentence, [low, high, sample])
    for look in (_broken_by_a_step, _worse_in_every_term, _falls_with_the_rate):
        if (seen := look(stage)) is not None:
            return seen
    # On-policy: how fast the sampler itself turns deterministic.
    surprisal = stage.ends("surprisal", _LEARNING_RATE_FEW)
    if (
        surprisal is None
        or stage.num_steps > 2 * WINDOW
        or min(surprisal[0].values) <= 0
        or (missed := unused(stage, _LEARNING_RATE_FEW)) is None
    ):
        return None
    start, last = surprisal
    if last.mean > 0.1 * start.values[0]:
        return None
    sentence = (
        f"Within {stage.num_steps} steps the surprisal of what is sampled fell from {number(start.values[0])} to"
        f" {number(last.mean)} nats a decision. The reward is {number(missed[1].mean)}; at the start the best member of"
        f" a group earned {number(missed[0].mean)}."
    )
    return Seen(sentence, [start, last, *missed])


def _broken_by_a_step(stage: Stage) -> Seen | None:
    """Judges the weights themselves: an update that changes a twentieth of them, with which the reward broke
    down below where it began.
    """
    change = largest_change(stage, _LEARNING_RATE_FEW)
    if change is None or change.mean < _BREAKS:
        return None
    sentence = f"An update changed the weights by {number(100 * change.mean)} % of their size"
    first, spread, last = (
        stage.first("reward", 1),
        stage.first("reward_std", 1),
        stage.last("reward", _LEARNING_RATE_FEW),
    )
    if first is None or spread is None or last is None:
        loss = stage.ends("loss_sup", _LEARNING_RATE_FEW)
        if loss is None or change.mean < _BREAKS_LOSS or loss[0].above(loss[1]):
            return None
        return Seen(f"{sentence}, and the supervised loss has not fallen.", [change, *loss])
    if stage.num_steps < 2 * _LEARNING_RATE_FEW:
        return None
    if last.mean >= first.mean - 0.5 * spread.mean:
        return _evaluated_below(stage, sentence, change, spread)
    return Seen(
        f"{sentence}, and the reward fell from {number(first.mean)} in the first step to {number(last.mean)}.",
        [change, first, last],
    )


def _evaluated_below(stage: Stage, sentence: str, change: Series, spread: Series) -> Seen | None:
    """Judges the evaluations, which know better than one step where the reward began: a fall as large as is asked of
    training, and beyond luck. Where all groups of that step were flat, nothing says how large that is.
    """
    if spread.mean <= 0:
        return None
    for seen in stage.evaluated_rewards():
        if seen.values[0] - seen.values[-1] > max(0.5 * spread.mean, EVALUATION_ERRORS * luck(stage)):
            return Seen(
                f"{sentence}, and the reward of the evaluations fell from {number(seen.values[0])} to"
                f" {number(seen.values[-1])}.",
                [change, seen],
            )
    return None


def _worse_in_every_term(stage: Stage) -> Seen | None:
    """Judges whether steps go down any term of the loss: beside a reward that neither rises nor is evaluated higher,
    the supervised loss has doubled, while updates have grown and the learning rate has not. A step of the right size
    lowers what it is the gradient of.
    """
    start, loss, reward = first_loss(stage, _LEARNING_RATE_FEW), last_loss(stage, WINDOW), stage.ends("reward")
    change, rate = stage.first(CHANGE, _LEARNING_RATE_FEW), stage.first("learning_rate", _LEARNING_RATE_FEW)
    grown, fallen = stage.last(CHANGE), stage.last("learning_rate")
    if not (loss and reward and start and change and rate and grown and fallen) or reward[1].above(reward[0]):
        return None
    if loss.mean < _DOUBLED * start.mean or not loss.above(start) or not grown.above(change):
        return None
    if fallen.mean > rate.mean or not evaluations_stay(stage):
        return None
    return Seen(
        f"Updates changed the weights by {number(change.mean)} of their size at first and by {number(grown.mean)} now,"
        f" at no higher learning rate; the supervised loss rose from {number(start.mean)} to {number(loss.mean)},"
        f" and the reward has not risen ({number(reward[0].mean)} at first, {number(reward[1].mean)} now).",
        [change, grown, start, loss, *reward],
        means=_WORSE,
        advice=_CHECK,
    )


def _falls_with_the_rate(stage: Stage) -> Seen | None:
    """Judges a reward that fell after its best window, where the learning rate is higher than it was then."""
    last, spread, now = stage.last("reward"), stage.first("reward_std"), stage.last("learning_rate", _LEARNING_RATE_FEW)
    best, first = stage.windows.best, stage.first("learning_rate", 2 * WINDOW)
    if not (last and spread and now and best and first) or not best.above(last, errors=4.0):
        return None
    if best.mean - last.mean < _FELL * spread.mean:
        return None
    then = [rate for step, rate in zip(first.steps, first.values, strict=True) if step in best.steps]
    if not then or now.mean < _DOUBLED * max(then):
        return None
    return Seen(
        f"In steps {best.steps[0]} to {best.steps[-1]}, at a learning rate of {number(max(then))} at most, the reward"
        f" was {number(best.mean)}; at {number(now.mean)} it is {number(last.mean)}.",
        [best, last, now],
        advice="Let the schedule of optimiser.learning_rate stop rising before that, or fall.",
    )


def _unmoved(stage: Stage) -> bool:
    """Returns whether the weights' way is too short to have changed anything."""
    way = path(stage, _LEARNING_RATE_FEW)
    return way is not None and way < _NOWHERE and stage.num_steps >= 2 * WINDOW


def _short_way(stage: Stage) -> bool:
    """Returns whether the weights' way is short and nothing else tells whether the policy has moved: densities without
    a KL, of which no evaluation has risen either.
    """
    way = path(stage, _LEARNING_RATE_FEW)
    return (
        stage.num_steps >= 3 * WINDOW
        and way is not None
        and way < _SHORT
        and stage.count("surprisal") == stage.count("kl") == 0
        and not evaluations_rise(stage)
    )


def _moved(stage: Stage) -> bool:
    way = path(stage, _LEARNING_RATE_FEW)
    return way is not None and way > _SOMEWHERE


def _low(stage: Stage) -> Seen | None:
    return _ended(stage) or _hardly_moved(stage)


def _ended(stage: Stage) -> Seen | None:
    """Judges a rate that is exactly 0: a schedule that lasts as long as its stage reaches 0 in its last step alone."""
    rate, first = stage.last("learning_rate"), stage.first("learning_rate", 1)
    if rate is None or first is None or any(rate.values):
        return None
    sentence = f"The learning rate has been 0 for {WINDOW} steps ({number(first.mean)} in the first step)."
    means = "No update changes anything: the schedule of the learning rate ended before the stage did, or is 0."
    advice = "Let the schedule of optimiser.learning_rate last as many steps as the stage (num_steps), or end above 0."
    risen = stage.windows.risen or rewards_rise(stage)
    return Seen(sentence, [first, rate], "note" if risen else None, means, advice)


def _hardly_moved(stage: Stage) -> Seen | None:
    reward, surprisal, kl, rate = (
        stage.ends("reward"),
        stage.ends("surprisal"),
        stage.last("kl"),
        stage.last("learning_rate"),
    )
    if (
        reward is None
        or rate is None
        or reward[1].above(reward[0])
        or not (_unmoved(stage) or _short_way(stage) or (stage.num_steps >= 3 * WINDOW and stands_still(stage)))
    ):
        return None
    way = path(stage, _LEARNING_RATE_FEW)
    movements = (
        [f"surprisal {number(surprisal[0].mean)} at first, {number(surprisal[1].mean)} now"] if surprisal else []
    )
    movements += [f"KL {number(kl.mean)} nats a decision"] if kl else []
    movements += [f"all changes of the weights {number(way)} of their size"] if way is not None else []
    sentence = (
        f"In {stage.num_steps} steps with updates (learning rate {number(rate.mean)}) the policy has not moved:"
        f" {', '.join(movements)}; reward {number(reward[0].mean)} at first, {number(reward[1].mean)} now."
    )
    change = stage.last(CHANGE, _LEARNING_RATE_FEW)
    evidence = [series for series in (rate, *(surprisal or ()), kl, change, *reward) if series is not None]
    return Seen(sentence, evidence)


LEARNING_RATE_TOO_HIGH = Rule(
    "learning_rate_too_high",
    "warning",
    "Is my learning rate too high?",
    (
        *("effective_sample_size", "ratio/p1", "ratio/p99", "on_policy_share", "surprisal", "groups/best", "reward"),
        *("reward_std", "weights/change", "loss_sup", "lambda_sup", "learning_rate", "rewards_std"),
        "eval/NAME",
    ),
    f"one of five things. (1) Over {_LEARNING_RATE_FEW} steps the effective sample size of off-policy ratios is"
    " below 0.5, or"
    f" below 0.8 if 1 % of these ratios are above 3 or below 1/3. (2) Within {2 * WINDOW} steps the surprisal"
    " falls to a tenth of its start, and the reward has risen by less than half the distance from its start to"
    f" what the best member of a group earned then. (3) An update changes the weights by {_BREAKS:.0%} of their"
    " size, and the reward lies below that of the first step by half the spread inside groups, or evaluations"
    f" have fallen as far (in a supervised stage: by {_BREAKS_LOSS:.0%}, and the loss does not fall). (4) Beside a"
    " policy term, the supervised loss has doubled and updates have grown at no higher learning rate, and neither"
    f" the reward nor an evaluation has risen. (5) The reward has fallen by {_FELL:g} of the spread inside groups"
    f" and by four standard errors from its best {WINDOW} steps, which lie among the first {2 * WINDOW}, and the"
    " learning rate is twice what it was then",
    "One batch moves the policy so far that the batch is no longer a sample of it. Such a policy soon becomes"
    " deterministic and repeats the first answers that were rewarded.",
    "Take a tenth of optimiser.learning_rate, set optimiser.warm_up_steps, lower train.max_grad_norm, or take"
    " fewer train.updates_per_batch.",
    _high,
    phrase="the learning rate is too high",
    follows=(
        "generator_drifts",
        "ratio_not_one",
        "weight_decay_too_high",
        "ratio_always_one",
    ),
    steps="smaller",
)
LEARNING_RATE_TOO_LOW = Rule(
    "learning_rate_too_low",
    "warning",
    "Is my learning rate too low?",
    ("learning_rate", "surprisal", "kl", "updates/taken", "reward", "weights/change", "eval/NAME"),
    f"the learning rate is 0 for {WINDOW} steps (a note if the reward has risen). Or the reward has not risen and"
    f" the weights have hardly moved: after {2 * WINDOW} steps their changes sum to less than {_NOWHERE:g} of"
    f" their size; or after {3 * WINDOW} steps to less than {_SOMEWHERE:g}, the surprisal has changed by no more"
    f" than 2 % and two standard errors, and the KL is below {UNMOVED:g}. Densities have no surprisal: there the"
    f" KL alone decides, or, if none is measured, a sum below {_SHORT:g} while no evaluation has risen",
    "Updates are made, but the policy has hardly changed. Steps are too small, the schedule of the learning rate"
    " has already ended, or another term of the loss holds the policy.",
    "Take ten times optimiser.learning_rate, or lower auxiliary.supervised, whose gradient may make up all of"
    " grad_norm. Look also at learning_rate in metrics.jsonl, at train.max_grad_norm beside grad_norm, and at"
    " divergence.beta.",
    _low,
    phrase="the learning rate is too low",
    follows=(
        "divergence_holds",
        "policy_term_drowned",
        "weights_unchanged",
        "admission_rejects",
        "exploration_too_strong",
    ),
    steps="larger",
)


# Weight decay that takes the weights away.

_WEIGHT_DECAY_FEW = 5
_A_STEP = 1e-3
_IN_ALL = 0.3


def _weight_decay_look(stage: Stage) -> Seen | None:
    decay, rate = stage.setting("optimiser.weight_decay"), stage.last("learning_rate", _WEIGHT_DECAY_FEW)
    if not isinstance(decay, int | float) or rate is None or rewards_rise(stage, _WEIGHT_DECAY_FEW):
        return None
    share = decay * rate.mean
    if share < _A_STEP or share * stage.count(CHANGE) < _IN_ALL:
        return None
    return Seen(
        f"optimiser.weight_decay = {number(decay)} times the learning rate {number(rate.mean)} takes away"
        f" {number(100 * share)} % of every weight in each update.",
        [rate],
    )


WEIGHT_DECAY_TOO_HIGH = Rule(
    "weight_decay_too_high",
    "fault",
    "Does weight decay destroy my model?",
    ("learning_rate", CHANGE, "reward"),
    f"the product of optimiser.weight_decay and the learning rate is at least {_A_STEP:g} an update and at least"
    f" {_IN_ALL:g} over all updates so far, and the reward has not risen",
    "In each update, AdamW's decay multiplies every weight by 1 - learning_rate * weight_decay, whatever the"
    " gradient says. The model forgets what it could do.",
    "Set optimiser.weight_decay to 0, or to at most 0.1.",
    _weight_decay_look,
    phrase="weight decay takes the weights away",
)


# Updates that are counted and change nothing.

_UNCHANGED_FEW = 10
_NOTHING = 1e-12


def _unchanged_look(stage: Stage) -> Seen | None:
    changes, rate = stage.last(CHANGE, _UNCHANGED_FEW), stage.last("learning_rate", _UNCHANGED_FEW)
    if changes is None or rate is None or max(changes.values) > _NOTHING or min(rate.values) <= 0:
        return None
    return Seen(
        f"The optimiser stepped at a learning rate of {number(rate.mean)}, and no weight changed in the last"
        f" {_UNCHANGED_FEW}"
        " steps with an update.",
        [changes, rate],
    )


WEIGHTS_UNCHANGED = Rule(
    "weights_unchanged",
    "fault",
    "Why do updates change nothing?",
    (CHANGE, "learning_rate"),
    f"in the last {_UNCHANGED_FEW} steps with an update no weight changed, at a learning rate above 0",
    "The optimiser updates tensors that are not the model's, or each step is smaller than half a unit in the last"
    " place of the weights' dtype and rounds to nothing.",
    "Build the optimiser from the parameters of the model that samples. Keep the weights in float32"
    ' (domain.model.dtype = "float32"), or raise optimiser.learning_rate.',
    _unchanged_look,
    phrase="updates change no weight",
)
