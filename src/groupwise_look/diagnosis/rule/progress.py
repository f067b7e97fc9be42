"""Runs that get nowhere: they are slow, end early, sample from another policy, or their reward stands or falls."""

from collections.abc import Sequence

from groupwise_look.diagnosis.rule.base import Seen, first_of, need, newest_of, saw
from groupwise_look.diagnosis.rule.movement import CHANGE, has_hardly_moved, shrunken_steps
from groupwise_look.diagnosis.rule.rising import Rise, evaluations_stay, rise
from groupwise_look.diagnosis.series import WINDOW, Series
from groupwise_look.diagnosis.stage import Stage


def _slow(stage: Stage) -> Seen | None:
    steps, rewards = newest_of(stage, 3, "step_time", "seconds/rewards")
    if steps.mean < 1.0 or rewards.mean < 0.75 * steps.mean:
        return None
    limit, meant = stage.setting("train.max_seconds"), stage.planned_steps
    if not isinstance(limit, int | float) or not meant or steps.mean * meant <= 2 * limit:
        return saw("", [steps, rewards], steps=steps, rewards=rewards)
    held = limit / steps.mean
    return saw(
        "limited", [steps, rewards], "warning", steps=steps, rewards=rewards, limit=limit, held=held, meant=meant
    )


def _stopped(stage: Stage) -> Seen | None:
    goal = need(stage.goal)
    if not stage.setting("train.early_stopping"):
        return None
    patience, least = (stage.setting(f"train.early_stopping.{name}") for name in ("patience", "min_gain"))
    # A table of a stage may leave them out.
    patience, least = 5 if patience is None else patience, 0.0 if least is None else least
    sign = -1.0 if stage.setting("train.metric_goal") == "min" else 1.0
    best = _best(goal.values, sign, least)
    # A stage that goes on after that many does not stop early.
    if len(goal) - 1 - best != patience:
        return None
    if best > 0:
        return _while_the_reward_rises(stage, goal, best)
    most = max(sign * (value - goal.values[0]) for value in goal.values[1:])
    return saw("no_gain", [goal], patience=patience, goal=goal, most=most, least=least)


def _best(values: Sequence[float], sign: float, least: float) -> int:
    """Returns the place of the last evaluation that early stopping counts as a gain; 0 where none is."""
    best = 0
    for place, value in enumerate(values):
        if sign * (value - values[best]) > least:
            best = place
    return best


def _while_the_reward_rises(stage: Stage, goal: Series, best: int) -> Seen | None:
    """Judges a stage that had gained something: whether the reward of the same evaluations has risen since by more
    than a hundredth.
    """
    for seen in stage.evaluated_rewards():
        if seen.metric == goal.metric or seen.steps != goal.steps:
            continue
        then, now = seen.values[best], seen.values[-1]
        if now > then + 0.01 * abs(then):
            return saw(
                "reward_rises", [goal, seen], goal=goal, best_step=goal.steps[best], seen=seen, then=then, now=now
            )
    return None


def _by_heart(stage: Stage) -> Seen | None:
    [epoch], [spread], (start, last) = (
        newest_of(stage, 1, "epoch"),
        first_of(stage, WINDOW, "reward_std"),
        need(stage.ends("reward")),
    )
    if epoch.mean < 5.0 or not last.above(start) or last.mean - start.mean < 0.25 * spread.mean:
        return None
    seen = need(next((seen for seen in stage.evaluated_rewards() if seen.values[-1] <= seen.values[0]), None))
    return saw("", [start, last, seen], start=start, last=last, epoch=epoch, seen=seen, now=seen.values[-1])


def _drifts(stage: Stage) -> Seen | None:
    metric = "sampling/sampling_logp_difference/mean"
    [start], [newest] = first_of(stage, 1, metric), newest_of(stage, 3, metric)
    # Truncation by top-p makes a difference as well, from the first step on and of about the same size.
    if stage.count(metric) <= 3 or min(newest.values) < max(0.02, 10.0 * start.mean):
        return None
    return saw("", [start, newest], newest=newest, start=start)


def _rescored_apart(stage: Stage) -> Seen | None:
    [gap] = newest_of(stage, 3, "sampling/rescoring_difference/mean")
    bounds = [stage.setting(f"trust.{side}") for side in ("low", "high")]
    width = min((bound for bound in bounds if isinstance(bound, int | float) and bound > 0), default=0.2)
    # fp32 rounds log-probs of up to ten nats by up to 9.5e-7, so no two passes agree better.
    if gap.mean <= max(0.1 * width, 1e-6):
        return None
    return saw("rescored", [gap], gap=gap, width=width)


def _ratios_apart(stage: Stage) -> Seen | None:
    share, low, high = newest_of(stage, 3, "on_policy_share", "ratio/p1", "ratio/p99")
    if share.mean != 1 or (high.mean <= 1.05 and low.mean >= 0.95):
        return None
    return saw("ratios", [low, high], low=low, high=high)


def _always_one(stage: Stage) -> Seen | None:
    share, equal, change = newest_of(stage, 3, "on_policy_share", "on_policy_fraction", CHANGE)
    surprisal = stage.last("surprisal", 3)
    # Below this surprisal log-probs may be exactly 0 before an update and after it.
    if surprisal is not None and surprisal.mean < 1e-3:
        return None
    if max(share.values) > 0.9 or min(equal.values) < 0.99 or min(change.values) < 1e-5:
        return None
    return saw("", [share, equal, change], later=1 - share.mean, change=change, equal=equal)


_LONG = 100
"""A stage of at least this many steps is judged by 40 steps at each end, without its evaluations."""


def _flat(stage: Stage) -> Seen | None:
    count, seen = stage.count("reward"), need(_rise(stage))
    if count < 2 * WINDOW or not seen.is_none or has_hardly_moved(stage):
        return None
    # A reward that had risen and stays is at its end, not flat.
    if stage.windows.risen or _all_flat(stage):
        return None
    # Over few steps a small rise that is seen is one.
    if count < _LONG and (seen.last.above(seen.start) or not evaluations_stay(stage)):
        return None
    if (steps := shrunken_steps(stage, 5)) is None:
        return saw("", seen.evidence, count=count, seen=seen)
    return saw("dwindled", [*seen.evidence, *steps], "note", count=count, seen=seen, steps=steps)


def _rise(stage: Stage) -> Rise | None:
    """Returns the rise of the reward from the first window to the newest, twice as wide in a long stage."""
    return rise(stage, 2 * WINDOW if stage.count("reward") >= _LONG else WINDOW)


def is_no_longer_flat(stage: Stage) -> bool:
    """Returns whether a rise is seen, in training or in evaluations, or groups no longer differ. A reward that was
    shown to be flat is so until then: the newest steps may be too noisy to show it once more.
    """
    seen = _rise(stage)
    evaluated = bool(stage.evaluated_rewards()) and not evaluations_stay(stage)
    return seen is None or seen.last.above(seen.start) or stage.windows.risen or evaluated or _all_flat(stage)


def _all_flat(stage: Stage) -> bool:
    flat = stage.last("frac_reward_zero_std")
    return flat is not None and flat.mean >= 0.95


def _falls(stage: Stage) -> Seen | None:
    [last], [spread] = newest_of(stage, WINDOW, "reward"), first_of(stage, WINDOW, "reward_std")
    start, best = need(stage.windows.first), need(stage.windows.best)
    fall = best.mean - last.mean
    # The best of many windows is high by luck: four errors, half of the gain, and a quarter of the spread inside a
    # group.
    if not best.above(last, errors=4.0) or fall < 0.5 * (best.mean - start.mean) or fall < 0.25 * spread.mean:
        return None
    return saw("reward", [best, last], best=best, last_step=best.steps[-1], last=last)


def _evaluations_fall(stage: Stage) -> Seen | None:
    """Judges the evaluations of a stage too short for windows, or whose reward fell with its first steps; a fall that
    no luck of the evaluation's prompts explains.
    """
    [spread] = first_of(stage, 5, "reward_std")
    for seen in stage.evaluated:
        start, last = seen.values[0], seen.values[-1]
        if seen.metric.endswith("/reward") and start - last > max(spread.mean, 0.1 * abs(start)):
            return saw("evaluations", [seen, spread], start=start, last=last)
    return None


LOOKS = {
    "rewards_are_slow": [_slow],
    "stopped_early": [_stopped],
    "learns_by_heart": [_by_heart],
    "generator_drifts": [_drifts],
    "ratio_not_one": [_rescored_apart, _ratios_apart],
    "ratio_always_one": [_always_one],
    "reward_flat": [_flat],
    "reward_falls": [_falls, _evaluations_fall],
}
