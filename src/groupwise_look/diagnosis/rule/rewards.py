"""Rewards that compare nothing or pay for something else than was meant."""

import math

from groupwise_look.diagnosis.rule.base import Seen, first_of, has_grown, need, newest_of, present, saw
from groupwise_look.diagnosis.rule.rising import EVALUATION_ERRORS, evaluation_error, no_judge_fell, num_evaluated
from groupwise_look.diagnosis.series import WINDOW, Series
from groupwise_look.diagnosis.stage import Stage


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
    return saw("now", [share, *(spreads[name] for name in shown)], dominant=dominant, made=made, beside=beside)


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
            return saw(
                "at_first", [share, start, last], dominant=dominant, share=share, name=name, start=start, last=last
            )
    return None


def _missing(stage: Stage) -> Seen | None:
    names = [*stage.rewards(weighted=True), *stage.rewards(weighted=False)]
    shares = {name: share for name in names if (share := stage.last(f"rewards/{name}/missing"))}
    worst = need(max(shares, key=lambda name: shares[name].mean, default=None))
    if shares[worst].mean <= 0.2:
        return None
    return saw("", [shares[worst]], worst=worst, missing=shares[worst])


def _judge_falls(stage: Stage) -> Seen | None:
    start, last = need(stage.ends("reward"))
    if not last.above(start):
        return None
    for name in stage.rewards(weighted=False):
        judge, spread = stage.ends(f"rewards/{name}/mean"), stage.first(f"rewards/{name}/std")
        if judge is None or spread is None or not judge[0].above(judge[1]):
            continue
        if judge[0].mean - judge[1].mean >= 0.25 * spread.mean:
            return saw("judge", [start, last, *judge], start=start, last=last, name=name, judge=judge)
    return None


def _evaluated_reward(stage: Stage, judge: Series) -> Series | None:
    """Returns the reward of the evaluations that measured a judge; `None` where it was evaluated once or never."""
    name = f"{judge.metric.rpartition('/')[0]}/reward"
    return next((seen for seen in stage.evaluated_rewards() if seen.metric == name), None)


def _evaluated_judge_falls(stage: Stage) -> Seen | None:
    """Compares judges that only evaluations measure: few numbers, so that a fall must be a tenth of the first."""
    start, last = need(stage.ends("reward"))
    if not last.above(start):
        return None
    for judge in stage.evaluated_judges():
        paid = _evaluated_reward(stage, judge)
        # Where the reward of the evaluations falls as well, nothing is earned: the policy is worse in every way.
        if paid and paid.values[-1] < paid.values[0]:
            continue
        then, now = judge.values[0], judge.values[-1]
        if then - now > 0.1 * abs(then):
            return saw("evaluated", [start, last, judge], start=start, last=last, judge=judge, then=then, now=now)
        if paid and (place := _best_place(stage, judge, paid)) is not None:
            rise = {"place": judge.steps[place], "best": judge.values[place], "now": now}
            paid_then, paid_now = paid.values[place], paid.values[-1]
            return saw("from_best", [start, last, judge], judge=judge, paid_then=paid_then, paid_now=paid_now, **rise)
    return None


def _best_place(stage: Stage, judge: Series, paid: Series) -> int | None:
    """Returns the place of the best value of a judge that rose with the reward at first, and has fallen since while the
    reward of the evaluations rose on.
    """
    place = max(range(len(judge)), key=lambda place: judge.values[place])
    best, last = judge.values[place], judge.values[-1]
    if paid.steps != judge.steps or best - last <= 0.2 * abs(best) or paid.values[-1] <= paid.values[place]:
        return None
    # The standard error of the difference of two shares, where the judge is one.
    count, mean = num_evaluated(stage), (best + last) / 2
    error = 0.0 if count is None or not 0 <= mean <= 1 else math.sqrt(2 * mean * (1 - mean) / count)
    return None if best - last <= EVALUATION_ERRORS * error else place


def _judge_collapses(stage: Stage) -> Seen | None:
    """Judges a rise within noise, of one to two standard errors: beside a judge of the evaluations that has lost half
    of its first value, which no luck explains, it is one.
    """
    start, last = need(stage.ends("reward"))
    if last.above(start) or not last.above(start, errors=1.0):
        return None
    lucky = EVALUATION_ERRORS * evaluation_error(stage)
    for judge in stage.evaluated_judges():
        paid, then, now = _evaluated_reward(stage, judge), judge.values[0], judge.values[-1]
        if paid is None or paid.values[0] - paid.values[-1] > lucky or then - now <= max(0.5 * abs(then), lucky):
            continue
        return saw("collapses", [start, last, judge], last=last, start=start, judge=judge, then=then, now=now)
    return None


def _judge_disagrees(stage: Stage) -> Seen | None:
    for name in stage.rewards(weighted=False):
        agreement = stage.last(f"rewards/{name}/agreement")
        if agreement and agreement.mean <= -0.2 and agreement.mean + 2 * agreement.error <= 0:
            return saw("", [agreement], name=name, agreement=agreement)
    return None


def _follows_length(stage: Stage) -> Seen | None:
    [correlation], (start, last) = (
        first_of(stage, WINDOW, "groups/length_correlation"),
        need(stage.ends("completions/mean_length")),
    )
    cut = present(stage.first("completions/clipped_ratio", 5), stage.last("completions/clipped_ratio"))
    to_the_limit = len(cut) == 2 and cut[0].mean < 0.1 and cut[1].mean > 0.5
    # Where a judge does not fall, longer members are what was meant.
    if correlation.mean < (0.5 if to_the_limit else 0.9) or not has_grown(start, last, 1.25) or no_judge_fell(stage):
        return None
    return saw("", [correlation, start, last], correlation=correlation, start=start, last=last)


def _alike(stage: Stage) -> Seen | None:
    [flat], surprisal = first_of(stage, 5, "frac_reward_zero_std"), stage.first("surprisal", 5)
    distinct, size = stage.first("completions/distinct", 5), stage.first("group_size", 5)
    if flat.mean < 0.9:
        return None
    if distinct and size and size.mean > 1 and distinct.mean * size.mean <= 1.5:
        return saw("few", [distinct, flat], different=distinct.mean * size.mean, size=size, flat=flat)
    if surprisal is None or min(surprisal.values) < 0 or surprisal.mean > 0.01:
        return None
    return saw("sure", [surprisal, flat], surprisal=surprisal, flat=flat)


def _loss_is_zero(stage: Stage) -> Seen | None:
    loss, norm = first_of(stage, 5, "loss_pg", "grad_norm")
    # Other trainers do not record the advantages; they are of the size of the rewards, or near 1.
    spread = need(stage.first("advantages_std", 5) or stage.first("reward_std", 5))
    size = max(map(abs, loss.values))
    if min(norm.values) <= 0 or spread.mean <= 0 or size > 1e-3 * spread.mean:
        return None
    return saw("", [loss, norm], size=size, norm=norm)


def _constant(stage: Stage) -> Seen | None:
    names = stage.rewards(weighted=True)
    constants = {name: means for name in names if (means := _only_value(stage, name))}
    if not constants:
        return None
    said = " and ".join(f"{name} has given every member {means[0]}" for name, means in constants.items())
    evidence = [mean for means in constants.values() for mean in means]
    if len(constants) == len(names):
        return saw("", evidence, said=said)
    return saw("others_vary", evidence, "note", said=said)


def _only_value(stage: Stage, name: str) -> list[Series]:
    """Returns the first and the newest means of a reward where no member ever earned another value."""
    means, spreads = (
        present(stage.first(f"rewards/{name}/{what}"), stage.last(f"rewards/{name}/{what}")) for what in ("mean", "std")
    )
    if len(means) < 2 or len(spreads) < 2:
        return []
    values = [*means[0].values, *means[1].values]
    near = 1e-9 * max(1.0, max(map(abs, values)))
    varies = max(values) - min(values) > near or max(*spreads[0].values, *spreads[1].values) > near
    return [] if varies else means


def _ignores_answer(stage: Stage) -> Seen | None:
    flat, reward = first_of(stage, 10, "frac_reward_zero_std", "reward")
    [last_flat] = newest_of(stage, 10, "frac_reward_zero_std")
    # Too easy and too hard prompts earn all or nothing.
    at_the_bounds = present(*(stage.first(name, 10) for name in ("groups/all_right", "groups/all_wrong")))
    if min(*flat.values, *last_flat.values) < 0.99 or sum(share.mean for share in at_the_bounds) > 0.5:
        return None
    spread, distinct, surprisal = (
        stage.first(name, 10) for name in ("groups/mean_std", "completions/distinct", "surprisal")
    )
    between_steps = max(reward.values) - min(reward.values)
    if max(between_steps, spread.mean if spread else 0.0) <= max(map(abs, reward.values)) * 1e-6:
        return None
    if distinct and distinct.mean < 0.5 and (surprisal is None or surprisal.mean < 0.1):
        return None
    seen = f", although {distinct:.0%} of the members are distinct" if distinct else ""
    return saw(
        "", [flat, reward, *present(spread, distinct)], seen=seen, lowest=min(reward.values), highest=max(reward.values)
    )


_PLACES = {
    "groups/place_correlation": "A member's reward and its place in the group",
    "batch/place_correlation": "A group's mean reward and its place in the batch of its process",
}


def _follows_place(stage: Stage) -> Seen | None:
    # Adaptive sampling draws prompts of middling difficulty first.
    for metric in list(_PLACES)[: 1 if stage.setting("train.adaptive_sampling") else 2]:
        start, last = stage.first(metric), stage.last(metric)
        if start and last and _correlated(start) and _correlated(last) and start.mean * last.mean >= 0:
            return saw("", [start, last], places=_PLACES[metric], last=last, start=start)
    return None


def _correlated(series: Series) -> bool:
    # With two groups a step, 19 of 20 correlations have one sign by luck once in 25,000 windows of six standard errors.
    return abs(series.mean) >= 0.25 and abs(series.mean) > 6.0 * series.error


def _is_noise(stage: Stage) -> Seen | None:
    [start], [noise] = first_of(stage, WINDOW, "groups/copies_noise"), newest_of(stage, WINDOW, "groups/copies_noise")
    if noise.mean < 0.5:
        return None
    if start.mean < 0.5:
        return saw("grown", [start, noise], "note", noise=noise)
    return saw("", [noise], noise=noise)


def _all_flat(stage: Stage) -> Seen | None:
    flat, reward = newest_of(stage, WINDOW, "frac_reward_zero_std", "reward")
    start, wrong = need(stage.first("reward")), stage.last("groups/all_wrong")
    if flat.mean < 0.95:
        return None
    shown = {"flat": flat, "reward": reward, "start": start, "wrong": wrong}
    if not reward.above(start):
        return saw("", [flat, reward], **shown)
    if wrong is not None and wrong.mean > 0.1:
        return saw("sure_and_wrong", [flat, wrong, reward], "warning", **shown)
    if _answers_grew(stage):
        return saw("long", [flat, reward], "warning", **shown)
    return saw("learnt" if no_judge_fell(stage) else "not_judged", [flat, reward], "note", **shown)


def _answers_grew(stage: Stage) -> bool:
    """Returns whether answers are half as long again as when the stage began, or the length limit now cuts off what it
    did not cut off then.
    """
    lengths, cut = stage.ends("completions/mean_length"), stage.ends("completions/clipped_ratio")
    longer = lengths is not None and has_grown(*lengths)
    return longer or (cut is not None and cut[1].mean >= 0.5 and cut[1].above(cut[0]))


LOOKS = {
    "reward_dominates": [_dominates, _dominated],
    "reward_missing": [_missing],
    "judge_falls": [_judge_falls, _evaluated_judge_falls, _judge_collapses],
    "judge_disagrees": [_judge_disagrees],
    "reward_follows_length": [_follows_length],
    "samples_alike": [_alike],
    "loss_zero": [_loss_is_zero],
    "reward_constant": [_constant],
    "reward_ignores_answer": [_ignores_answer],
    "reward_follows_place": [_follows_place],
    "reward_is_noise": [_is_noise],
    "all_flat": [_all_flat],
}
