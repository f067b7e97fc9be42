"""Rewards that pay for something else than was meant: one drowns the others, is missing, or parts from the judge."""

from __future__ import annotations

import math

from groupwise.diagnosis.rule.base import Rule, Seen, first_of, has_grown, need, number, present
from groupwise.diagnosis.rule.rising import EVALUATION_ERRORS, judged, luck, num_evaluated
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage


def _dominates(stage: Stage) -> Seen | None:
    names = stage.rewards(weighted=True)
    dominant, share = _dominant({name: stage.last(f"rewards/{name}/share") for name in names})
    spreads = {name: std for name in names if (std := stage.last(f"rewards/{name}/std"))}
    # A part that no longer varies is done, not drowned.
    others = [
        name
        for name, std in spreads.items()
        if name != dominant and std.mean > 0.05 * _size(std, stage.last(f"rewards/{name}/mean"))
    ]
    if not others:
        return None
    shown = [name for name in (dominant, *others) if name in spreads]
    weights = present(*(stage.last(f"rewards/{name}/weight", 1) for name in (dominant, *others)))
    beside = ", ".join(
        f"{name}: spread {spreads[spread]}, weight {weight}"
        for name, spread, weight in zip((dominant, *others), shown, weights, strict=False)
    )
    # The parts of the others may be negative: they lower the sum where it is high.
    made = f"{share:.1%}" if share.mean < 1 else "all"
    return Seen(
        f"Reward {dominant} makes {made} of what the members of a group are compared by ({beside}).",
        [share, *(spreads[name] for name in shown)],
    )


def _dominant(shares: dict[str, Series | None]) -> tuple[str, Series]:
    """Returns the reward that makes more than 95 % of what members are compared by."""
    found = {name: share for name, share in shares.items() if share is not None}
    name = need(max(found, key=lambda name: found[name].mean, default=None))
    return name, need(found[name] if len(shares) > 1 and found[name].mean > 0.95 else None)


def _size(std: Series, mean: Series | None) -> float:
    """Returns the scale of a reward: its mean and its spread together."""
    return math.hypot(mean.mean if mean else 0.0, std.mean)


def _dominated(stage: Stage) -> Seen | None:
    """Judges the stage's first steps: a reward that decided alone then, and whose way was so short that it no longer
    varies, while those that it drowned have not risen.
    """
    names = stage.rewards(weighted=True)
    dominant, share = _dominant({name: stage.first(f"rewards/{name}/share", 5) for name in names})
    if stage.num_steps < 2 * WINDOW:
        return None
    for name in names:
        ends, spread = stage.ends(f"rewards/{name}/mean", 5), stage.first(f"rewards/{name}/std", 5)
        if name == dominant or ends is None or spread is None or spread.mean <= 0:
            continue
        start, last = ends
        if not last.above(start):
            return Seen(
                f"In the first 5 steps reward {dominant} made {share:.1%} of what the members of a group are compared"
                f" by, and {name} has not risen since ({start} at first, {last} now).",
                [share, start, last],
            )
    return None


def _missing(stage: Stage) -> Seen | None:
    names = [*stage.rewards(weighted=True), *stage.rewards(weighted=False)]
    shares = {name: share for name in names if (share := stage.last(f"rewards/{name}/missing"))}
    worst = need(max(shares, key=lambda name: shares[name].mean, default=None))
    if shares[worst].mean <= 0.2:
        return None
    return Seen(
        f"Reward {worst} had no value for {shares[worst]:.0%} of the members of the last {WINDOW} steps.",
        [shares[worst]],
    )


def _judge_falls(stage: Stage) -> Seen | None:
    start, last = need(stage.ends("reward"))
    if not last.above(start):
        return None
    for name in stage.rewards(weighted=False):
        judge, spread = stage.ends(f"rewards/{name}/mean"), stage.first(f"rewards/{name}/std")
        if judge is None or spread is None or not judge[0].above(judge[1]):
            continue
        if judge[0].mean - judge[1].mean >= 0.25 * spread.mean:
            return Seen(
                f"The reward rose from {start} to {last} while the judge {name}, which is not trained on, fell from"
                f" {judge[0]} to {judge[1]}.",
                [start, last, *judge],
            )
    return None


def _paid(stage: Stage, judge: Series) -> Series | None:
    """Returns the reward of the evaluations that measured a judge; `None` where it was evaluated once or never."""
    name = f"{judge.metric.rpartition('/')[0]}/reward"
    return next((seen for seen in stage.evaluated_rewards() if seen.metric == name), None)


def _evaluated_judge_falls(stage: Stage) -> Seen | None:
    """Compares judges that only evaluations measure: few numbers, so that a fall must be a tenth of the first."""
    start, last = need(stage.ends("reward"))
    if not last.above(start):
        return None
    for judge in stage.evaluated_judges():
        paid, name = _paid(stage, judge), judge.metric.removeprefix("eval/")
        # Where the reward of the evaluations falls as well, nothing is earned: the policy is worse in every way.
        if paid and paid.values[-1] < paid.values[0]:
            continue
        if judge.values[0] - judge.values[-1] > 0.1 * abs(judge.values[0]):
            return Seen(
                f"The reward rose from {start} to {last} while {name} of the evaluations, which is not trained on, fell"
                f" from {judge.values[0]:.3g} to {judge.values[-1]:.3g}.",
                [start, last, judge],
            )
        if paid and (fallen := _from_its_best(stage, judge, paid)):
            return Seen(fallen, [start, last, judge])
    return None


def _from_its_best(stage: Stage, judge: Series, paid: Series) -> str:
    """Returns what to say of a judge that rose with the reward at first, and has fallen since while the reward of the
    evaluations rose on.
    """
    place = max(range(len(judge)), key=lambda place: judge.values[place])
    best, last = judge.values[place], judge.values[-1]
    if paid.steps != judge.steps or best - last <= 0.2 * abs(best) or paid.values[-1] <= paid.values[place]:
        return ""
    # The standard error of the difference of two shares, where the judge is one.
    count, mean = num_evaluated(stage), (best + last) / 2
    error = 0.0 if count is None or not 0 <= mean <= 1 else math.sqrt(2 * mean * (1 - mean) / count)
    if best - last <= EVALUATION_ERRORS * error:
        return ""
    return (
        f"Since step {judge.steps[place]} the reward of the evaluations rose from {number(paid.values[place])} to"
        f" {number(paid.values[-1])} while {judge.metric.removeprefix('eval/')}, which is not trained on, fell"
        f" from {number(best)} to {number(last)}."
    )


def _judge_collapses(stage: Stage) -> Seen | None:
    """Judges a rise within noise, of one to two standard errors: beside a judge of the evaluations that has lost half
    of its first value, which no luck explains, it is one.
    """
    start, last = need(stage.ends("reward"))
    if last.above(start) or not last.above(start, errors=1.0):
        return None
    lucky = EVALUATION_ERRORS * luck(stage)
    for judge in stage.evaluated_judges():
        paid, then, now = _paid(stage, judge), judge.values[0], judge.values[-1]
        if paid is None or paid.values[0] - paid.values[-1] > lucky or then - now <= max(0.5 * abs(then), lucky):
            continue
        return Seen(
            f"The reward is {last} ({start} at first), and {judge.metric.removeprefix('eval/')} of the evaluations,"
            f" which is not trained on, fell from {then:.3g} to {now:.3g}.",
            [start, last, judge],
        )
    return None


def _judge_disagrees(stage: Stage) -> Seen | None:
    for name in stage.rewards(weighted=False):
        agreement = stage.last(f"rewards/{name}/agreement")
        if agreement and agreement.mean <= -0.2 and agreement.mean + 2 * agreement.error <= 0:
            return Seen(
                f"The members of a group that earn more are those that the judge {name} likes less (correlation"
                f" {agreement} over the last {WINDOW} steps).",
                [agreement],
            )
    return None


def _follows_length(stage: Stage) -> Seen | None:
    [correlation], (start, last) = (
        first_of(stage, WINDOW, "groups/length_correlation"),
        need(stage.ends("completions/mean_length")),
    )
    cut = present(stage.first("completions/clipped_ratio", 5), stage.last("completions/clipped_ratio"))
    to_the_limit = len(cut) == 2 and cut[0].mean < 0.1 and cut[1].mean > 0.5
    # Where a judge does not fall, longer members are what was meant.
    if correlation.mean < (0.5 if to_the_limit else 0.9) or not has_grown(start, last, 1.25) or judged(stage):
        return None
    return Seen(
        f"From the start, the longer members of a group earned more (correlation {correlation}), and members have grown"
        f" from {start} to {last} decisions.",
        [correlation, start, last],
    )


def _alike(stage: Stage) -> Seen | None:
    [flat], surprisal = first_of(stage, 5, "frac_reward_zero_std"), stage.first("surprisal", 5)
    distinct, size = stage.first("completions/distinct", 5), stage.first("group_size", 5)
    if flat.mean < 0.9:
        return None
    if distinct and size and size.mean > 1 and distinct.mean * size.mean <= 1.5:
        return Seen(
            f"In the first 5 steps only {number(distinct.mean * size.mean)} of the {size:.0f} members of a group were"
            f" different on average, and {flat:.0%} of the groups were flat.",
            [distinct, flat],
        )
    if surprisal is None or min(surprisal.values) < 0 or surprisal.mean > 0.01:
        return None
    return Seen(
        f"In its first 5 steps the stage's policy was sure of everything it did ({surprisal} nats a decision), and"
        f" {flat:.0%} of the groups were flat.",
        [surprisal, flat],
    )


RULES = (
    Rule(
        "reward_dominates",
        "warning",
        "Why does one of my rewards not improve?",
        "rewards/NAME/share rewards/NAME/std rewards/NAME/weight rewards/NAME/mean",
        "over 20 steps one of several weighted rewards makes more than 95 % of the variance inside groups, while"
        " another still varies; or one did over the first 5 steps, and another has not risen since",
        "Advantages compare the weighted sum of the rewards. A reward of small spread has hardly any effect beside one"
        " of large spread, however important it is.",
        "Choose domain.rewards.NAME.weight so that weight times spread is similar for all rewards, or set"
        " advantage.kind = per_reward (method gdpo), which divides each reward by its own spread.",
        "one reward drowns the others",
        [_dominates, _dominated],
    ),
    Rule(
        "reward_missing",
        "warning",
        "Why is the reward missing for many members?",
        "rewards/NAME/missing",
        "more than 20 % of the members of 20 steps have no value of a reward (it returned none, timed out or raised)",
        "Members without this reward are compared by the other rewards alone, or not at all; those that still have it"
        " may be a biased selection.",
        "Raise domain.rewards.NAME.timeout_seconds, look at the reward's other settings, and run `groupwise check`: it"
        " scores one group and shows the values.",
        "rewards are missing",
        [_missing],
    ),
    Rule(
        "judge_falls",
        "warning",
        "Is the reward being hacked?",
        "reward rewards_std rewards/JUDGE/mean eval/NAME",
        "from the first to the last 20 steps the reward rose by more than two standard errors, and one of these fell:"
        " a judge (weight 0), by more than two standard errors and a quarter of its spread; a judge of the"
        " evaluations, by a tenth of its first value while the reward of the evaluations did not fall; or the same, by"
        " a fifth of its best value and 2 standard errors while that reward rose. Or the reward rose by more than one"
        " standard error, that of the evaluations did not fall by 2, and a judge of the evaluations lost 0.5 of its"
        " first value and 2 standard errors. `train.metric` counts as a judge if it is no reward",
        "The policy has found a way to earn that you did not intend: a higher reward no longer means a better answer.",
        "Look at rollouts/ and mend the reward, let the reward pay for what the judge measures, raise divergence.beta,"
        " or stop at the step at which the judge was best.",
        "the judge falls while the reward rises",
        [_judge_falls, _evaluated_judge_falls, _judge_collapses],
        causes=(
            "held_out_unlike_training judge_disagrees reward_follows_length reward_dominates length_creep"
            " prompts_come_back"
        ),
    ),
    Rule(
        "judge_disagrees",
        "warning",
        "Does the reward pay for the opposite of what I want?",
        "rewards/JUDGE/agreement",
        "over 20 steps the correlation inside groups of the reward with a judge (weight 0) is -0.2 or less, and two"
        " standard errors below 0",
        "Every update makes more likely what the judge likes less. This shows, before the judge falls, that the reward"
        " does not pay for the goal.",
        "Look at a group in rollouts/ with the judge's value beside the reward. Mend the reward, or also train on what"
        " the judge sees, with a reward of its own (domain.rewards.NAME.weight).",
        "the reward prefers what the judge likes less",
        [_judge_disagrees],
        causes="reward_dominates reward_follows_length",
    ),
    Rule(
        "reward_follows_length",
        "warning",
        "Is length what my reward pays for?",
        "groups/length_correlation completions/mean_length completions/clipped_ratio",
        "over the first 20 steps the correlation inside groups of reward and number of decisions is at least 0.9 (0.5"
        " if most members now end at the length limit and hardly any did at first), and the mean length of the last 20"
        " steps is at least 1.25 times that of the first. The rule is silent if judges are measured and none has"
        " fallen",
        "The longer member earns more, whatever it says, so the policy learns to be long. This is right only if the"
        " task itself wants long answers.",
        "Look at the longest members in rollouts/. If length is not the goal, take it out of the reward, or add a"
        " reward with domain.rewards.NAME.kind = soft_overlong. A reward with role = 'judge' measures the goal and is"
        " not trained on.",
        "the reward pays for length",
        [_follows_length],
        causes="reward_dominates",
    ),
    Rule(
        "samples_alike",
        "warning",
        "Why are the members of a group copies of each other from the start?",
        "surprisal frac_reward_zero_std completions/distinct group_size",
        "over the first 5 steps at least 90 % of the groups are flat, and either a group has at most 1.5 different"
        " members on average or the surprisal is below 0.01 nats a decision",
        "Copies earn the same, so no group compares anything. Sampling is close to greedy, or the policy that the"
        " stage began with is sure of one answer.",
        "Sample more randomly: domain.sampling.temperature = 1, top_p = 1 and top_k = 0 for texts, a larger"
        " domain.policy.sigma or sampler.noise for images. Or begin with an earlier model, for example after a shorter"
        " supervised stage.",
        "members are copies of each other from the start",
        [_alike],
    ),
)
