"""Other terms of the loss that leave the reward no say: a divergence that holds the policy, an auxiliary term that
drowns it.
"""

from __future__ import annotations

from groupwise_look.diagnosis.rule.base import Rule, Seen, number, rewards_rise
from groupwise_look.diagnosis.rule.optimisation import first_loss, last_loss, stands_still
from groupwise_look.diagnosis.rule.rising import evaluations_rise, evaluations_stay
from groupwise_look.diagnosis.series import WINDOW, Series
from groupwise_look.diagnosis.stage import Stage

_FEW = 10
_ALLOWED = 0.1
_DROWNED = 20.0
_START = 5
_LEARNT = 0.25
"""Share of its first value to which a supervised loss has fallen that was learnt."""
_AUXILIARY = ("loss_sup", "loss_cons", "loss_l2")


def _advantages(stage: Stage) -> float | None:
    """Returns the spread of advantages in groups that differ; `None` where hardly any does."""
    spread, flat = stage.last("advantages_std", _FEW), stage.last("frac_reward_zero_std", _FEW)
    if spread is None or flat is None or flat.mean > 0.9 or spread.mean <= 0:
        return None
    return spread.mean / (1 - flat.mean) ** 0.5


def _holds(stage: Stage) -> Seen | None:
    loss, kl, size = stage.last("loss_kl", _FEW), stage.last("kl", _FEW), _advantages(stage)
    if loss is None or kl is None or size is None or kl.mean <= 0 or stage.num_steps < WINDOW or rewards_rise(stage):
        return None
    beta = loss.mean / kl.mean
    if beta <= 0 or size / beta > _ALLOWED:
        return None
    return Seen(
        f"The divergence has the coefficient {number(beta)}, and the advantages have a spread of {number(size)}: they"
        f" balance when a log-prob has moved by about {number(size / beta)} nats. The reward has not risen.",
        [loss, kl],
    )


def _drowned(stage: Stage) -> Seen | None:
    size = _advantages(stage)
    terms = [term for name in _AUXILIARY if (term := stage.last(name, _FEW)) is not None]
    if size is None or not terms or stage.num_steps < WINDOW or rewards_rise(stage):
        return None
    largest = max(terms, key=lambda term: term.mean)
    if largest.mean < _DROWNED * size:
        return _learnt_alone(stage)
    return Seen(
        f"{largest.metric} is {number(largest.mean)}, and advantages have a spread of {number(size)}: nearly the whole"
        " gradient comes from that term. The reward has not risen.",
        [largest],
    )


def _learnt_alone(stage: Stage) -> Seen | None:
    """Judges what was learnt: a supervised loss that fell to a small part of what it was, beside a reward that stands
    still and is evaluated no higher. Its targets do not earn, and the weights went after them.
    """
    earned, start, last = stage.ends("reward"), first_loss(stage, _START), last_loss(stage, _FEW)
    if earned is None or earned[1].above(earned[0]) or not evaluations_stay(stage):
        return None
    if start is None or last is None or not 0 < last.mean < _LEARNT * start.mean:
        return None
    return Seen(
        f"The supervised loss fell from {number(start.mean)} to {number(last.mean)}, and the reward has not risen"
        f" ({number(earned[0].mean)} at first, {number(earned[1].mean)} now): the policy has learnt only that term.",
        [start, last, *earned],
    )


DIVERGENCE_HOLDS = Rule(
    "divergence_holds",
    "warning",
    "Does the divergence hold my policy back?",
    ("loss_kl", "kl", "advantages_std", "frac_reward_zero_std", "reward"),
    f"from step {WINDOW} on, over {_FEW} steps, the spread of the advantages divided by the divergence's"
    f" coefficient is below {_ALLOWED:g} nats, and the reward has not risen",
    "A log-prob moves until the divergence pulls it back as strongly as the advantages push it. This quotient is"
    " about how far that is: the policy may not leave its reference.",
    "Take a hundredth of divergence.beta (0.001 to 0.1 is usual), or divergence.kind = none.",
    _holds,
    phrase="the divergence holds the policy",
)
POLICY_TERM_DROWNED = Rule(
    "policy_term_drowned",
    "warning",
    "Does another term of the loss decide alone?",
    (*_AUXILIARY, "lambda_sup", "advantages_std", "frac_reward_zero_std", "reward", "rewards_std", "eval/NAME"),
    f"from step {WINDOW} on, over {_FEW} steps, an auxiliary term of the loss is at least {_DROWNED:g} times the"
    " spread of the advantages of groups that differ, and the reward has not risen; or the supervised loss,"
    f" without its coefficient, has fallen to {_LEARNT:g} of its value in the first {_START} steps, and neither"
    " the reward nor an evaluation has risen",
    "The gradient is that of the auxiliary term, so the reward has hardly any part in what is learnt. If the term"
    " is learnt and earns nothing, its targets may not be what the reward wants.",
    "Look at the targets of the auxiliary term: does a policy that repeats the demonstrations earn anything?"
    " Lower auxiliary.supervised, auxiliary.consistency or train.l2_to_reference until the term is about as large"
    " as the advantages, or raise policy_weight.",
    _drowned,
    phrase="another term of the loss drowns the reward",
    follows=("learning_rate_too_high",),
)


# The terms beside the policy's: a supervised loss that does not fall, a consistency loss that creeps up.


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


# An average of the weights that is still where it began.

_SHARE = 0.5


def _average_look(stage: Stage) -> Seen | None:
    decay, ends = stage.setting("train.weight_average.decay"), stage.ends("reward", WINDOW // 2)
    if not isinstance(decay, int | float) or stage.setting("train.weight_average.warm_up") is not False:
        return None
    if ends is None or not ends[1].above(ends[0]) or not stage.evaluated_rewards() or evaluations_rise(stage):
        return None
    updates = stage.num_steps
    for name in ("updates_per_batch", "minibatches"):
        count = stage.setting(f"train.{name}")
        updates *= count if isinstance(count, int) else 1
    share = float(decay) ** updates
    if share <= _SHARE:
        return None
    return Seen(
        f"After {updates} updates the average of the weights (train.weight_average.decay = {number(float(decay))}) is"
        f" still made up to {number(100 * share)} % of the weights that the stage began with. The reward rose from"
        f" {number(ends[0].mean)} to {number(ends[1].mean)}; the evaluations, which use the average, did not rise.",
        ends,
    )


AVERAGE_LAGS = Rule(
    "average_lags",
    "warning",
    "Why does the evaluation not move while the reward rises?",
    ("reward", "eval/NAME"),
    f"`train.weight_average.warm_up` is off, decay ** updates is above {_SHARE}, and the reward has risen, but no"
    " reward that was evaluated twice or more lies more than a hundredth above its first value",
    "Evaluations, and the model that is kept, use an average of the weights. This average is still mostly the"
    " weights that training began with, so it lacks what was learnt.",
    "Lower train.weight_average.decay to about 1 - 10 / updates, set train.weight_average.warm_up = true, or train"
    " longer.",
    _average_look,
    phrase="the average of the weights has hardly left where it began",
)


# A reward that follows the place at which a member was scored.

_LEAST = 0.25
_ERRORS = 6.0
"""Standard errors: with two groups a step, 19 of 20 correlations have one sign by luck once in 25,000 windows."""
_METRICS = {
    "groups/place_correlation": "a member's reward and its place in the group",
    "batch/place_correlation": "a group's mean reward and its place in the batch of its process",
}


def _place_look(stage: Stage) -> Seen | None:
    # Adaptive sampling draws prompts of middling difficulty first.
    metrics = list(_METRICS)[: 1 if stage.setting("train.adaptive_sampling") else 2]
    for metric in metrics:
        start, last = stage.first(metric), stage.last(metric)
        if start is None or last is None or not (_correlated(start) and _correlated(last)):
            continue
        if start.mean * last.mean < 0:
            continue
        return Seen(
            f"{_METRICS[metric][:1].upper()}{_METRICS[metric][1:]} are correlated: {number(last.mean)} over the last"
            f" {WINDOW} steps, {number(start.mean)} over the first.",
            [start, last],
        )
    return None


def _correlated(series: Series) -> bool:
    return abs(series.mean) >= _LEAST and abs(series.mean) > _ERRORS * series.error


REWARD_FOLLOWS_PLACE = Rule(
    "reward_follows_place",
    "warning",
    "Does my reward depend on the order in which members are scored?",
    tuple(_METRICS),
    f"the correlation of reward and place is at least {_LEAST} in size and {_ERRORS:g} standard errors from 0,"
    f" both over the first and over the last {WINDOW} steps, with the same sign; with `train.adaptive_sampling`"
    " only places in the group are judged",
    "Prompts come in random order and the members of a group are drawn alike, so a reward of prompt and answer"
    " cannot depend on places. Something else is in the reward: an index, a counter, a time, or a cache that"
    " fills.",
    "Score one member twice, at the start and at the end of a batch (`groupwise.testing.check_reward` does this)."
    " Remove from the reward function what counts or remembers.",
    _place_look,
    phrase="the reward follows the place in the batch",
    # Prompts that come in one order have places of their own.
    follows=("prompts_come_back",),
)
