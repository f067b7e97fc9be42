"""Groups whose members all got the same reward: nothing to compare."""

from __future__ import annotations

import math

from groupwise_look.diagnosis.rule.base import Rule, Seen, number, rewards_rise
from groupwise_look.diagnosis.rule.rising import EVALUATION_ERRORS, luck, num_evaluated
from groupwise_look.diagnosis.series import WINDOW, Series
from groupwise_look.diagnosis.stage import Stage

_LOOK = (
    "Look at rollouts/ and at completions/mean_length before you use this model. A reward with role = 'judge' measures"
    " the goal and is not trained on. To go on from here, take harder prompts or a finer reward."
)

_MOST_WRONG = 0.1
"""Share of groups that earn nothing at all, above which what is learnt is not what the prompts could teach."""
_TRY_AGAIN = (
    "Where the policy is wrong, it must go on trying other answers. Make the supervised stage before this one longer,"
    " lower optimiser.learning_rate, set entropy = 0.001 or more, or take a higher domain.sampling.temperature or a"
    " larger train.group_size."
)


def _groups_look(stage: Stage) -> Seen | None:
    flat, reward, start = stage.last("frac_reward_zero_std"), stage.last("reward"), stage.first("reward")
    if flat is None or reward is None or start is None or flat.mean < 0.95:
        return None
    sentence = (
        f"{flat.mean:.0%} of the groups of the last {WINDOW} steps had equal rewards (mean reward"
        f" {number(reward.mean)})."
    )
    if reward.above(start) and reward.mean > start.mean:
        risen = f"The reward has risen from {number(start.mean)}, and now all members of a group earn the same"
        if (wrong := stage.last("groups/all_wrong")) is not None and wrong.mean > _MOST_WRONG:
            means = (
                f"{risen}. In {wrong.mean:.0%} of the groups they earn nothing: there the policy is sure and wrong, and"
                " since all members are alike, nothing corrects it."
            )
            return Seen(sentence, [flat, wrong, reward], "warning", means, _TRY_AGAIN)
        if _grown(stage):
            return Seen(
                sentence,
                [flat, reward],
                "warning",
                f"{risen}, while answers grew. Perhaps the policy has learnt to be long.",
                _LOOK,
            )
        if not judged(stage):
            return Seen(
                sentence,
                [flat, reward],
                "note",
                f"{risen}. No judge shows that they earn it as you meant.",
                _LOOK,
            )
        means = f"{risen}, and no judge has fallen. The policy has learnt what the prompts could teach."
        return Seen(
            sentence, [flat, reward], "note", means, "Stop here, or go on with harder prompts or a finer reward."
        )
    return Seen(sentence, [flat, reward])


def _grown(stage: Stage) -> bool:
    """Returns whether answers are half as long again as when the stage began, or the length limit now cuts off what it
    did not cut off then.
    """
    lengths, cut = stage.ends("completions/mean_length"), stage.ends("completions/clipped_ratio")
    longer = lengths is not None and lengths[1].mean >= 1.5 * lengths[0].mean and lengths[1].above(lengths[0])
    return longer or (cut is not None and cut[1].mean >= 0.5 and cut[1].above(cut[0]))


def judged(stage: Stage) -> bool:
    """Returns whether judges, which are not trained on, are measured, and none has fallen."""
    judge_ends = [
        ends for name in stage.rewards(weighted=False) if (ends := stage.ends(f"rewards/{name}/mean")) is not None
    ]
    evaluated = stage.evaluated_judges()
    return (
        bool(judge_ends or evaluated)
        and not any(start.above(last) for start, last in judge_ends)
        and all(series.values[-1] >= series.values[0] for series in evaluated)
    )


ALL_FLAT = Rule(
    "all_flat",
    "fault",
    "Why does nothing happen? Why is the loss exactly 0?",
    ("frac_reward_zero_std", "reward", "groups/all_wrong"),
    f"at least 95 % of the groups are flat over {WINDOW} steps; if the reward had risen before, this is a note, or"
    " a warning if answers grew with the reward or more than a tenth of the groups earn nothing",
    "In a flat group all members earn the same, so every advantage is 0 and the group teaches nothing. The"
    " mean reward tells whether the prompts are too hard or too easy.",
    "Take easier or harder prompts, a reward with more levels, a higher domain.sampling.temperature, a larger"
    " train.group_size, or a supervised stage before this one.",
    _groups_look,
    phrase="all groups are flat",
    follows=(
        "divergence_negative",
        "reference_elsewhere",
        "advantage_turned",
        "prompts_truncated",
        "reward_constant",
        "reward_ignores_answer",
        "weight_decay_too_high",
        "exploration_too_strong",
        "reward_follows_length",
        "samples_alike",
        "reward_missing",
        "all_truncated",
        "learning_rate_too_high",
        "entropy_collapse",
        "prompts_never_earn",
    ),
)


# A judge that is not trained on falls while the reward rises.

_FROM_BEST = 0.2
_HALF = 0.5


def _hacking_look(stage: Stage) -> Seen | None:
    reward = stage.ends("reward")
    if reward is None:
        return None
    if not reward[1].above(reward[0]):
        return _collapses(stage, reward)
    for name in stage.rewards(weighted=False):
        judge, spread = stage.ends(f"rewards/{name}/mean"), stage.first(f"rewards/{name}/std")
        if (
            judge is None
            or spread is None
            or not judge[0].above(judge[1])
            or judge[0].mean - judge[1].mean < 0.25 * spread.mean
        ):
            continue
        sentence = (
            f"The reward rose from {number(reward[0].mean)} to {number(reward[1].mean)} while the judge {name}, which"
            f" is not trained on, fell from {number(judge[0].mean)} to {number(judge[1].mean)}."
        )
        return Seen(sentence, [*reward, *judge])
    return _evaluated(stage, reward)


def _evaluated(stage: Stage, reward: tuple[Series, Series]) -> Seen | None:
    """Compares judges that only evaluations measure: few numbers, so that a fall must be a tenth of the first."""
    evaluated = {seen.metric: seen for seen in stage.evaluated}
    for seen in stage.evaluated_judges():
        metric = seen.metric
        paid = evaluated.get(f"{metric.rpartition('/')[0]}/reward")
        # Where the reward of the evaluations falls as well, nothing is earned: the policy is worse in every way.
        if paid and len(paid) > 1 and paid.values[-1] < paid.values[0]:
            continue
        start, last = seen.values[0], seen.values[-1]
        if start - last <= 0.1 * abs(start):
            if (fallen := _from_its_best(stage, seen, paid)) is not None:
                return Seen(fallen, [*reward, seen])
            continue
        sentence = (
            f"The reward rose from {number(reward[0].mean)} to {number(reward[1].mean)} while"
            f" {metric.removeprefix('eval/')} of the evaluations,"
        )
        return Seen(
            f"{sentence} which is not trained on, fell from {number(start)} to {number(last)}.", [*reward, seen]
        )
    return None


def _collapses(stage: Stage, reward: tuple[Series, Series]) -> Seen | None:
    """Judges a rise within noise, of one to two standard errors: beside a judge of the evaluations that has lost half
    of its first value, which no luck explains, it is one.
    """
    if not reward[1].above(reward[0], errors=1.0):
        return None
    evaluated = {seen.metric: seen for seen in stage.evaluated}
    for seen in stage.evaluated_judges():
        paid = evaluated.get(f"{seen.metric.rpartition('/')[0]}/reward")
        if paid is None or len(paid) < 2 or paid.values[0] - paid.values[-1] > EVALUATION_ERRORS * luck(stage):
            continue
        start, last = seen.values[0], seen.values[-1]
        if start - last > max(_HALF * abs(start), EVALUATION_ERRORS * luck(stage)):
            return Seen(
                f"The reward is {number(reward[1].mean)} ({number(reward[0].mean)} at first), and"
                f" {seen.metric.removeprefix('eval/')} of the evaluations, which is not trained on, fell from"
                f" {number(start)} to {number(last)}.",
                [*reward, seen],
            )
    return None


def _from_its_best(stage: Stage, judge: Series, paid: Series | None) -> str | None:
    """Returns what to say of a judge that rose with the reward at first, and has fallen since while the reward of the
    evaluations rose on.
    """
    place = max(range(len(judge)), key=lambda place: judge.values[place])
    best, last = judge.values[place], judge.values[-1]
    if paid is None or paid.steps != judge.steps or best - last <= _FROM_BEST * abs(best):
        return None
    if paid.values[-1] <= paid.values[place] or best - last <= EVALUATION_ERRORS * _luck_of_a_share(stage, best, last):
        return None
    return (
        f"Since step {judge.steps[place]} the reward of the evaluations rose from {number(paid.values[place])} to"
        f" {number(paid.values[-1])} while {judge.metric.removeprefix('eval/')}, which is not trained on, fell"
        f" from {number(best)} to {number(last)}."
    )


def _luck_of_a_share(stage: Stage, best: float, last: float) -> float:
    """Returns the standard error of the difference of two shares of as many members as are known to be evaluated; 0
    where it is not known, or the judge is no share.
    """
    count, mean = num_evaluated(stage), (best + last) / 2
    return 0.0 if count is None or not 0 <= mean <= 1 else math.sqrt(2 * mean * (1 - mean) / count)


JUDGE_FALLS = Rule(
    "judge_falls",
    "warning",
    "Is the reward being hacked?",
    ("reward", "rewards_std", "rewards/JUDGE/mean", "eval/NAME"),
    f"from the first to the last {WINDOW} steps the reward rose by more than two standard errors, and one of these"
    " fell: a judge (weight 0), by more than two standard errors and a quarter of its spread; a judge of the"
    " evaluations, by a tenth of its first value while the reward of the evaluations did not fall; or the same,"
    f" by a fifth of its best value and {EVALUATION_ERRORS:g} standard errors while that reward rose. Or the reward"
    " rose by"
    f" more than one standard error, that of the evaluations did not fall by {EVALUATION_ERRORS:g}, and a judge of the"
    f" evaluations lost {_HALF:g} of its first value and {EVALUATION_ERRORS:g} standard errors. `train.metric`"
    " counts as a"
    " judge if it is no reward",
    "The policy has found a way to earn that you did not intend: a higher reward no longer means a better answer.",
    "Look at rollouts/ and mend the reward, let the reward pay for what the judge measures, raise"
    " divergence.beta, or stop at the step at which the judge was best.",
    _hacking_look,
    phrase="the judge falls while the reward rises",
    follows=(
        "held_out_unlike_training",
        "judge_disagrees",
        "reward_follows_length",
        "reward_dominates",
        "length_creep",
        "prompts_come_back",
    ),
)


# Prompts that earn nothing from the first step to the last, while all the others are learnt.

_NEVER_EARN_FEW = 5
_WRONG = 0.25
_RISE = 0.2
_ERRORS = 4.0
_LEARNT = 0.8


def _never_earn_look(stage: Stage) -> Seen | None:
    wrong, right = stage.ends("groups/all_wrong"), stage.ends("groups/all_right")
    at_once = stage.first("groups/all_wrong", _NEVER_EARN_FEW)
    if wrong is None or right is None or at_once is None or wrong[1].mean < _WRONG:
        return None
    if any(start.above(wrong[1]) or wrong[1].above(start) for start in (at_once, wrong[0])):
        return None
    learnt = right[1].above(right[0], _ERRORS) and right[1].mean - right[0].mean >= _RISE
    if not learnt or right[1].mean < _LEARNT * (1 - wrong[1].mean):
        return None
    return Seen(
        f"In {wrong[0].mean:.0%} of the groups of the first {WINDOW} steps nobody earned anything, and in"
        f" {wrong[1].mean:.0%} of the last {WINDOW}, although those in which all members are right have grown from"
        f" {right[0].mean:.0%} to {right[1].mean:.0%}.",
        [*wrong, *right],
    )


PROMPTS_NEVER_EARN = Rule(
    "prompts_never_earn",
    "warning",
    "Why does my reward stop half way?",
    ("groups/all_wrong", "groups/all_right"),
    f"at least {_WRONG:.0%} of the groups of the last {WINDOW} steps earn nothing, and this share is within two"
    f" standard errors of that of the first {_NEVER_EARN_FEW} and of the first {WINDOW} steps; the share of groups"
    " in which"
    f" all are right has grown by {_RISE:.0%} and by {_ERRORS:g} standard errors, and these are {_LEARNT:.0%} of"
    " all groups that earn something",
    "The policy has learnt what it could, but not from these prompts. Their answers in the data are wrong, or"
    " have another form than the reward compares with (a unit, another spelling), or they are out of this"
    " policy's reach.",
    "In rollouts/, look at groups that earn nothing: would you accept what they say? Then bring the answers of"
    " the data into one form, or let the reward forgive the difference (domain.rewards.NAME). Otherwise take"
    " easier prompts.",
    _never_earn_look,
    phrase="a part of the prompts never earns anything",
    follows=(
        *("learning_rate_too_high", "ratio_always_one", "ratio_not_one", "generator_drifts", "weights_rewritten"),
        *("samples_alike", "entropy_collapse", "all_truncated", "limit_teaches_brevity", "prompts_truncated"),
        *("judge_disagrees", "judge_falls", "reward_is_noise", "reward_follows_place", "reward_ignores_answer"),
    ),
)


# A reward that gives equal answers different values.

_NOISE_SHARE = 0.5


def _noise_look(stage: Stage) -> Seen | None:
    start, noise = stage.first("groups/copies_noise"), stage.last("groups/copies_noise")
    if start is None or noise is None or noise.mean < _NOISE_SHARE:
        return None
    sentence = (
        f"Equal answers to one prompt earned different rewards. Over {WINDOW} steps the mean squared difference of two"
        f" equal members' rewards was {noise.mean:.0%} of that of any two members of their group."
    )
    if start.mean < _NOISE_SHARE:
        means = "The share was smaller at first. Members now differ little, so mostly noise is left."
        return Seen(sentence, [start, noise], "note", means)
    return Seen(sentence, [noise])


REWARD_IS_NOISE = Rule(
    "reward_is_noise",
    "warning",
    "Is my reward random?",
    ("groups/copies_noise",),
    f"over {WINDOW} steps in which groups held equal members, the mean squared difference of two equal members'"
    f" rewards was at least {_NOISE_SHARE} of that of any two members. This is only a note if it was"
    " less in the first such steps",
    "The reward is not a function of prompt and answer. It is random, it depends on where or when a member was"
    " scored, it belongs to another member, or a few of its values are outliers. Groups compare this noise.",
    "Score the members of one group twice (`groupwise.testing.check_reward` does this). Return the values in the"
    " order of the members, keep no state between calls, average random values, and bound them.",
    _noise_look,
    phrase="equal answers earn different rewards",
)


# What the reward prefers inside groups: longer members, or those that a judge likes less.

_FOLLOWS_LENGTH = 0.9
_AT_THE_LIMIT = 0.5
_PREFERENCE_GROWTH = 1.25
_PREFERENCE_FEW = 5
_AGAINST = -0.2


def _length(stage: Stage) -> Seen | None:
    correlation, lengths = stage.first("groups/length_correlation"), stage.ends("completions/mean_length")
    if correlation is None or lengths is None:
        return None
    start, last = lengths
    cut = stage.first("completions/clipped_ratio", _PREFERENCE_FEW), stage.last("completions/clipped_ratio")
    to_the_limit = cut[0] is not None and cut[1] is not None and cut[0].mean < 0.1 and cut[1].mean > 0.5
    if correlation.mean < (_AT_THE_LIMIT if to_the_limit else _FOLLOWS_LENGTH):
        return None
    # Where a judge does not fall, longer members are what was meant.
    if not last.above(start) or last.mean < _PREFERENCE_GROWTH * start.mean or judged(stage):
        return None
    sentence = (
        f"From the start, the longer members of a group earned more (correlation {number(correlation.mean)}), and"
        f" members have grown from {number(start.mean)} to {number(last.mean)} decisions."
    )
    return Seen(sentence, [correlation, start, last])


REWARD_FOLLOWS_LENGTH = Rule(
    "reward_follows_length",
    "warning",
    "Is length what my reward pays for?",
    ("groups/length_correlation", "completions/mean_length", "completions/clipped_ratio"),
    f"over the first {WINDOW} steps the correlation inside groups of reward and number of decisions is at least"
    f" {_FOLLOWS_LENGTH} ({_AT_THE_LIMIT} if most members now end at the length limit and hardly any did at"
    f" first), and the mean length of the last {WINDOW} steps is at least {_PREFERENCE_GROWTH} times that of the first."
    " The rule is silent if judges are measured and none has fallen",
    "The longer member earns more, whatever it says, so the policy learns to be long. This is right only if the"
    " task itself wants long answers.",
    "Look at the longest members in rollouts/. If length is not the goal, take it out of the reward, or add a"
    " reward with domain.rewards.NAME.kind = soft_overlong. A reward with role = 'judge' measures the goal and is"
    " not trained on.",
    _length,
    phrase="the reward pays for length",
    follows=("reward_dominates",),
)


def _judge(stage: Stage) -> Seen | None:
    for name in stage.rewards(weighted=False):
        agreement = stage.last(f"rewards/{name}/agreement")
        if agreement is None or agreement.mean > _AGAINST or agreement.mean + 2 * agreement.error > 0:
            continue
        return Seen(
            f"The members of a group that earn more are those that the judge {name} likes less (correlation"
            f" {number(agreement.mean)} over the last {WINDOW} steps).",
            [agreement],
        )
    return None


JUDGE_DISAGREES = Rule(
    "judge_disagrees",
    "warning",
    "Does the reward pay for the opposite of what I want?",
    ("rewards/JUDGE/agreement",),
    f"over {WINDOW} steps the correlation inside groups of the reward with a judge (weight 0) is {_AGAINST} or"
    " less, and two standard errors below 0",
    "Every update makes more likely what the judge likes less. This shows, before the judge falls, that the"
    " reward does not pay for the goal.",
    "Look at a group in rollouts/ with the judge's value beside the reward. Mend the reward, or also train on"
    " what the judge sees, with a reward of its own (domain.rewards.NAME.weight).",
    _judge,
    phrase="the reward prefers what the judge likes less",
    follows=("reward_dominates", "reward_follows_length"),
)


# Several rewards of which one decides alone, and rewards that are missing.

_REWARD_PARTS_FEW = 5


def _dominates(stage: Stage) -> Seen | None:
    return _dominates_now(stage) or _dominated(stage)


def _dominated(stage: Stage) -> Seen | None:
    """Judges the stage's first steps: a reward that decided alone then, and whose way was so short that it no longer
    varies, while those that it drowned have not risen.
    """
    names = stage.rewards(weighted=True)
    shares = {
        name: share for name in names if (share := stage.first(f"rewards/{name}/share", _REWARD_PARTS_FEW)) is not None
    }
    if len(names) < 2 or not shares or stage.num_steps < 2 * WINDOW:
        return None
    dominant = max(shares, key=lambda name: shares[name].mean)
    if shares[dominant].mean <= 0.95:
        return None
    drowned = {
        name: ends
        for name in names
        if name != dominant and (ends := stage.ends(f"rewards/{name}/mean", _REWARD_PARTS_FEW))
    }
    spreads = {
        name: std for name in drowned if (std := stage.first(f"rewards/{name}/std", _REWARD_PARTS_FEW)) is not None
    }
    for name, (start, last) in drowned.items():
        if name in spreads and spreads[name].mean > 0 and not last.above(start):
            return Seen(
                f"In the first {_REWARD_PARTS_FEW} steps reward {dominant} made {shares[dominant].mean:.1%} of what"
                " the members of a"
                f" group are compared by, and {name} has not risen since ({number(start.mean)} at first,"
                f" {number(last.mean)} now).",
                [shares[dominant], start, last],
            )
    return None


def _dominates_now(stage: Stage) -> Seen | None:
    names = stage.rewards(weighted=True)
    shares = {name: share for name in names if (share := stage.last(f"rewards/{name}/share")) is not None}
    if len(names) < 2 or not shares:
        return None
    dominant = max(shares, key=lambda name: shares[name].mean)
    # A part that no longer varies is done, not drowned.
    others = [
        name
        for name in names
        if name != dominant
        and (std := stage.last(f"rewards/{name}/std")) is not None
        and std.mean > 0.05 * _size(stage, name, std)
    ]
    if shares[dominant].mean <= 0.95 or not others:
        return None
    spreads = [series for name in (dominant, *others) if (series := stage.last(f"rewards/{name}/std")) is not None]
    weights = [
        series for name in (dominant, *others) if (series := stage.last(f"rewards/{name}/weight", 1)) is not None
    ]
    beside = ", ".join(
        f"{name}: spread {number(spread.mean)}, weight {number(weight.mean)}"
        for name, spread, weight in zip((dominant, *others), spreads, weights, strict=False)
    )
    share = shares[dominant].mean
    # The parts of the others may be negative: they lower the sum where it is high.
    made = f"{share:.1%}" if share < 1 else "all"
    sentence = f"Reward {dominant} makes {made} of what the members of a group are compared by ({beside})."
    return Seen(sentence, [shares[dominant], *spreads])


def _size(stage: Stage, name: str, std: Series) -> float:
    """Returns the scale of a reward: its mean and its spread together."""
    mean = stage.last(f"rewards/{name}/mean")
    return math.hypot(mean.mean if mean else 0.0, std.mean)


def _missing(stage: Stage) -> Seen | None:
    shares = {name: share for name in _names(stage) if (share := stage.last(f"rewards/{name}/missing")) is not None}
    worst = max(shares, key=lambda name: shares[name].mean, default="")
    if not worst or shares[worst].mean <= 0.2:
        return None
    return Seen(
        f"Reward {worst} had no value for {shares[worst].mean:.0%} of the members of the last {WINDOW} steps.",
        [shares[worst]],
    )


def _names(stage: Stage) -> list[str]:
    return [*stage.rewards(weighted=True), *stage.rewards(weighted=False)]


REWARD_DOMINATES = Rule(
    "reward_dominates",
    "warning",
    "Why does one of my rewards not improve?",
    ("rewards/NAME/share", "rewards/NAME/std", "rewards/NAME/weight", "rewards/NAME/mean"),
    f"over {WINDOW} steps one of several weighted rewards makes more than 95 % of the variance inside groups,"
    f" while another still varies; or one did over the first {_REWARD_PARTS_FEW} steps, and another has not risen"
    " since",
    "Advantages compare the weighted sum of the rewards. A reward of small spread has hardly any effect beside"
    " one of large spread, however important it is.",
    "Choose domain.rewards.NAME.weight so that weight times spread is similar for all rewards, or set"
    " advantage.kind = per_reward (method gdpo), which divides each reward by its own spread.",
    _dominates,
    phrase="one reward drowns the others",
)
REWARD_MISSING = Rule(
    "reward_missing",
    "warning",
    "Why is the reward missing for many members?",
    ("rewards/NAME/missing",),
    f"more than 20 % of the members of {WINDOW} steps have no value of a reward (it returned none, timed out or"
    " raised)",
    "Members without this reward are compared by the other rewards alone, or not at all; those that still"
    " have it may be a biased selection.",
    "Raise domain.rewards.NAME.timeout_seconds, look at the reward's other settings, and run `groupwise check`:"
    " it scores one group and shows the values.",
    _missing,
    phrase="rewards are missing",
)


# Steps that are smaller than the distance of two weights.

STUCK = "weights/stuck"
_ROUNDING_SHARE = 0.5


def _rounding_look(stage: Stage) -> Seen | None:
    stuck, rate = stage.last(STUCK), stage.last("learning_rate")
    if stuck is None or rate is None or not _ROUNDING_SHARE <= stuck.mean < 1 or min(rate.values) <= 0:
        return None
    return Seen(
        f"At a learning rate of {number(rate.mean)}, {stuck.mean:.0%} of the weights with a gradient were the same"
        f" after an update as before, over the last {WINDOW} steps.",
        [stuck, rate],
        "note" if stage.windows.risen or rewards_rise(stage) else None,
    )


STEPS_ROUND_AWAY = Rule(
    "steps_round_away",
    "warning",
    "Are my steps lost in the precision of the weights?",
    (STUCK, "learning_rate", "reward"),
    f"over {WINDOW} steps, at a learning rate above 0, updates left at least {_ROUNDING_SHARE:.0%} of the weights"
    " with a"
    " gradient as they were, but not all (a note if the reward has risen)",
    "The steps of these weights were smaller than half the distance to the next number of their dtype, so only"
    " small weights are trained. (bfloat16 has eight bits: steps below 0.2 % of a weight may round away.)",
    'Keep the weights in float32 (domain.model.dtype = "float32") and compute in bfloat16 (train.autocast), or take ten'
    " times optimiser.learning_rate.",
    _rounding_look,
    phrase="steps are lost in the precision of the weights",
    follows=("learning_rate_too_low",),
    steps="larger",
)


# Rewards that take the time of the run.

_SLOW_REWARDS_FEW = 3
_SLOW_REWARDS_SHARE = 0.75
_SECONDS = 1.0


def _slow_rewards_look(stage: Stage) -> Seen | None:
    steps, rewards = stage.last("step_time", _SLOW_REWARDS_FEW), stage.last("seconds/rewards", _SLOW_REWARDS_FEW)
    if steps is None or rewards is None or steps.mean < _SECONDS or rewards.mean < _SLOW_REWARDS_SHARE * steps.mean:
        return None
    sentence = f"Rewards take {number(rewards.mean)} of the {number(steps.mean)} seconds of a step"
    limit, meant = stage.setting("train.max_seconds"), stage.planned_steps
    if isinstance(limit, int | float) and meant and steps.mean * meant > 2 * limit:
        return Seen(
            f"{sentence}, so that the {number(limit)} seconds of train.max_seconds hold about"
            f" {limit / steps.mean:.0f} of {meant} steps.",
            [steps, rewards],
            "warning",
        )
    return Seen(f"{sentence}.", [steps, rewards])


REWARDS_ARE_SLOW = Rule(
    "rewards_are_slow",
    "note",
    "Why are my steps slow?",
    ("step_time", "seconds/rewards"),
    f"over {_SLOW_REWARDS_FEW} steps of {_SECONDS:g} s or more, rewards take at least {_SLOW_REWARDS_SHARE:.0%} of"
    " the time. This is a warning if"
    " `train.max_seconds` ends the stage before half of its steps",
    "The policy waits for its rewards: they are computed one after another, or by a slow or distant service.",
    "Score a batch in one call, or answer the calls of a batch at the same time (an async function). Cache what"
    " repeats. Or raise train.max_seconds.",
    _slow_rewards_look,
    phrase="rewards take nearly all of the time",
)


# A generator that no longer samples from the policy that is trained.

_METRIC = "sampling/sampling_logp_difference/mean"
_NEWEST = 3
_GENERATOR_GROWTH = 10.0
_NATS = 0.02


def _generator_look(stage: Stage) -> Seen | None:
    start, newest = stage.first(_METRIC, 1), stage.last(_METRIC, _NEWEST)
    if start is None or newest is None or stage.count(_METRIC) <= _NEWEST:
        return None
    # Truncation by top-p makes a difference as well, from the first step on and of about the same size.
    if min(newest.values) < max(_NATS, _GENERATOR_GROWTH * start.mean):
        return None
    return Seen(
        f"The sampler's log-probs differ from the policy's by {number(newest.mean)} nats a decision; in the first step"
        f" by {number(start.mean)}.",
        [start, newest],
    )


GENERATOR_DRIFTS = Rule(
    "generator_drifts",
    "fault",
    "Is the server sampling from the model that is trained?",
    (_METRIC,),
    f"in each of the last {_NEWEST} steps, the log-probs of the sampler and of the trained policy differ by at"
    f" least {_GENERATOR_GROWTH:g} times as much as in the first step and by {_NATS:g} nats",
    "The generator does not receive the trained weights: an older policy earns the rewards, and updates"
    " change a policy that does not sample.",
    'Leave domain.engine.sync unset, so that the servers receive the weights. With domain.engine.sync = "none",'
    " send them yourself after every update, or correct for the lag with method = METHOD+tis.",
    _generator_look,
    phrase="the generator does not sample from the trained weights",
)
