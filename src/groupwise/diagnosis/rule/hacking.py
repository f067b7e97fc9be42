"""A judge that is not trained on falls while the reward rises."""

from __future__ import annotations

import math

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.rule.evaluation import ERRORS, luck, num_evaluated
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage

_FROM_BEST = 0.2
_HALF = 0.5


def _look(stage: Stage) -> Seen | None:
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
        if paid is None or len(paid) < 2 or paid.values[0] - paid.values[-1] > ERRORS * luck(stage):
            continue
        start, last = seen.values[0], seen.values[-1]
        if start - last > max(_HALF * abs(start), ERRORS * luck(stage)):
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
    if paid.values[-1] <= paid.values[place] or best - last <= ERRORS * _luck_of_a_share(stage, best, last):
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
    f" by a fifth of its best value and {ERRORS:g} standard errors while that reward rose. Or the reward rose by"
    f" more than one standard error, that of the evaluations did not fall by {ERRORS:g}, and a judge of the"
    f" evaluations lost {_HALF:g} of its first value and {ERRORS:g} standard errors. `train.metric` counts as a"
    " judge if it is no reward",
    "The policy has found a way to earn that you did not intend: a higher reward no longer means a better answer.",
    "Look at rollouts/ and mend the reward, let the reward pay for what the judge measures, raise"
    " divergence.beta, or stop at the step at which the judge was best.",
    _look,
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
