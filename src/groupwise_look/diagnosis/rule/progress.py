"""A reward that does not rise, or that falls."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise_look.diagnosis.rule.base import Rule, Seen, number
from groupwise_look.diagnosis.rule.optimisation import CHANGE, dwindled, stands_still
from groupwise_look.diagnosis.rule.rising import EVALUATION_ERRORS, SHARE, SHARE_OF_REACH, Rise, evaluations_stay, rise
from groupwise_look.diagnosis.series import WINDOW, Series
from groupwise_look.diagnosis.stage import Stage

_FEW = 5
_LONG = 100
"""Steps from which on 40 at each end are compared, and no evaluation is asked."""
_EARLIEST = 2 * WINDOW
"""Steps before which nothing is said."""
_DWINDLED = (
    "The policy has stopped moving, whatever it earns. The optimiser divides by larger gradients from before, mostly"
    " from an earlier stage; only its momentum moved the weights at first."
)
_ANEW = (
    "Begin the stage with new moments (optimiser.moments), or take ten times optimiser.learning_rate. If the loss is"
    " divided by a fixed length, set aggregation.length to that of the answers."
)


def _flat(stage: Stage) -> Seen | None:
    count = stage.count("reward")
    long = count >= _LONG
    seen = _rise(stage)
    if seen is None or count < _EARLIEST or not seen.is_none or stands_still(stage):
        return None
    # A reward that had risen and stays is at its end, not flat. Over few steps a small rise that is seen is one.
    if (
        stage.windows.risen
        or _all_flat(stage)
        or (not long and (seen.last.above(seen.start) or not evaluations_stay(stage)))
    ):
        return None
    sentence = (
        f"The reward has not risen in {count} steps: {number(seen.start.mean)} at first, {number(seen.last.mean)} now"
        f" (a rise of {number(seen.most)} at most)."
    )
    if (steps := dwindled(stage, _FEW)) is not None:
        return Seen(
            f"{sentence} Updates changed the weights by {number(steps[0].mean)} of their size at first, and by"
            f" {number(steps[1].mean)} now, at a gradient of the same size.",
            [*seen.evidence, *steps],
            severity="note",
            means=_DWINDLED,
            advice=_ANEW,
        )
    return Seen(sentence, seen.evidence)


def _rise(stage: Stage) -> Rise | None:
    """Returns the rise of the reward from the first window to the newest, twice as wide in a long stage."""
    return rise(stage, 2 * WINDOW if stage.count("reward") >= _LONG else WINDOW)


def _is_no_longer_flat(stage: Stage) -> bool:
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
    return _while_trained(stage) or _evaluated(stage)


def _evaluated(stage: Stage) -> Seen | None:
    """Judges the evaluations of a stage too short for windows, or whose reward fell with its first steps; a fall that
    no luck of the evaluation's prompts explains.
    """
    spread = stage.first("reward_std", _FEW)
    if spread is None:
        return None
    for seen in stage.evaluated:
        if not seen.metric.endswith("/reward"):
            continue
        start, last = seen.values[0], seen.values[-1]
        if start - last > max(spread.mean, 0.1 * abs(start)):
            return Seen(f"The reward of the evaluations fell from {number(start)} to {number(last)}.", [seen, spread])
    return None


def _while_trained(stage: Stage) -> Seen | None:
    last, spread = stage.last("reward"), stage.first("reward_std")
    start, best = stage.windows.first, stage.windows.best
    if last is None or spread is None or start is None or best is None:
        return None
    fall = best.mean - last.mean
    # The best of many windows is high by luck: four errors, half of the gain, and a quarter of the spread inside a
    # group.
    if not best.above(last, errors=4.0) or fall < 0.5 * (best.mean - start.mean) or fall < 0.25 * spread.mean:
        return None
    return Seen(
        f"The reward fell from {number(best.mean)} (steps {best.steps[0]} to {best.steps[-1]}) to {number(last.mean)}.",
        [best, last],
    )


REWARD_FLAT = Rule(
    "reward_flat",
    "warning",
    "Why is my reward flat?",
    (
        *("reward", "reward_std", "rewards_std", "kl", "completions/mean_length", "eval/NAME", "learning_rate"),
        *("grad_norm", CHANGE),
    ),
    f"groups differ and the policy moves, but the reward has not risen. From step {_LONG} on: even with two"
    f" standard errors added, the rewards of the last {2 * WINDOW} steps exceed those of the first {2 * WINDOW} by"
    f" less than {SHARE} of the spread inside groups (with a KL to a frozen reference: by less than"
    f" {SHARE_OF_REACH} of the spread, times sqrt(2 KL of a member) if that is below 1). From step {_EARLIEST} on:"
    f" the same holds between the first and the last {WINDOW} steps, their difference is within two standard"
    " errors, and the newest evaluations of the reward exceed the first by no more than a hundredth or"
    f" {EVALUATION_ERRORS:g}"
    " standard errors. This is only a note if updates per unit of learning rate have shrunk to a tenth, while the"
    " gradient is at least half as large as at first",
    "Groups differ and the policy changes, but the reward does not rise: noise drowns the gradient, or the"
    " reward pays for something that cannot be learnt.",
    "Take more members (train.group_size or train.prompts_per_step), a reward with more levels, or an"
    " optimiser.learning_rate that is three times higher or lower. Look at members with `groupwise check` and in"
    " rollouts/.",
    _flat,
    phrase="the reward does not rise",
    follows=(
        "learning_rate_too_low",
        "advantage_turned",
        "decisions_left_out",
        "reference_elsewhere",
        "divergence_negative",
        "prompts_truncated",
        "reward_follows_place",
        "reward_is_noise",
        "training_unlike_held_out",
        "weights_unchanged",
        "weights_rewritten",
        "admission_rejects",
        "exploration_too_strong",
        "divergence_holds",
        "policy_term_drowned",
        "too_few_members",
        "policy_becomes_random",
        "reward_dominates",
        "all_flat",
        "no_update",
        "all_truncated",
        "reward_missing",
        "generator_drifts",
        "ratio_not_one",
        "ratio_always_one",
        "steps_round_away",
        "clip_mostly_acts",
        "entropy_collapse",
    ),
    ended=_is_no_longer_flat,
)
REWARD_FALLS = Rule(
    "reward_falls",
    "warning",
    "Why did my reward collapse?",
    ("reward", "reward_std", "eval/NAME"),
    f"the reward of the last {WINDOW} steps lies below that of the best {WINDOW} by four standard errors, by half"
    " of what was gained, and by a quarter of the first spread inside groups; or the reward of the evaluations"
    " has fallen from its first value by more than a tenth of it and by more than that spread",
    "The policy has lost what it had learnt. The cause is nearly always steps that are too large, and"
    " sometimes a reward or prompts that changed during the run.",
    "Lower optimiser.learning_rate (or let its schedule fall), lower train.max_grad_norm, take fewer"
    " train.updates_per_batch, or set divergence.beta above 0. `best/` holds the best model.",
    _falls,
    phrase="the reward falls",
    follows=(
        "weights_rewritten",
        "advantage_turned",
        "decisions_left_out",
        "reference_elsewhere",
        "divergence_negative",
        "held_out_unlike_training",
        "learning_rate_too_high",
        "training_unlike_held_out",
        "prompts_truncated",
        "reward_follows_place",
        "reward_is_noise",
        "reward_flat",
        "weight_decay_too_high",
        "policy_becomes_random",
        "policy_term_drowned",
        "too_few_members",
        "samples_alike",
        "exploration_too_strong",
        "not_finite",
        "generator_drifts",
        "ratio_not_one",
        "ratio_always_one",
        "prompts_come_back",
        "entropy_collapse",
        "all_truncated",
    ),
    steps="smaller",
)


# A stage that early stopping ends before anything has counted as a gain.

_PATIENCE, _MIN_GAIN = 5, 0.0
"""What `train.early_stopping` sets where a table of a stage leaves it out."""
_RISE = 0.01
_STILL_LEARNING = "The metric that early stopping watches stands still, but the policy still learns to earn more."
_GOAL = (
    "Look at train.metric and train.metric_goal: do they measure what you want? If so, raise"
    " train.early_stopping.patience."
)


def _look(stage: Stage) -> Seen | None:
    goal = stage.goal
    if goal is None or not stage.setting("train.early_stopping"):
        return None
    patience, least = (stage.setting(f"train.early_stopping.{name}") for name in ("patience", "min_gain"))
    patience, least = _PATIENCE if patience is None else patience, _MIN_GAIN if least is None else least
    sign = -1.0 if stage.setting("train.metric_goal") == "min" else 1.0
    best = _best(goal.values, sign, least)
    # A stage that goes on after that many does not stop early.
    if len(goal) - 1 - best != patience:
        return None
    name = goal.metric.removeprefix("eval/")
    if best > 0:
        return _while_the_reward_rises(stage, goal, best)
    most = max(sign * (value - goal.values[0]) for value in goal.values[1:])
    return Seen(
        f"Early stopping ends the stage after {patience} evaluations without a gain: {name} gained {number(most)} at"
        f" most, and more than {number(least)} counts (train.early_stopping.min_gain).",
        [goal],
    )


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
        if now > then + _RISE * abs(then):
            return Seen(
                f"Early stopping ends the stage because {goal.metric.removeprefix('eval/')} has gained nothing since"
                f" step {goal.steps[best]}, while {seen.metric.removeprefix('eval/')} rose from {number(then)} to"
                f" {number(now)}.",
                [goal, seen],
                means=_STILL_LEARNING,
                advice=_GOAL,
            )
    return None


STOPPED_EARLY = Rule(
    "stopped_early",
    "warning",
    "Why did my run end so early?",
    ("eval/NAME",),
    "`train.early_stopping` is set, and as many evaluations as its patience have passed in which the metric never"
    " exceeded its first value by more than min_gain; or in which it never exceeded its best value, while the"
    f" reward of the evaluations rose by more than {_RISE:g} of its value",
    "Early stopping ends the stage before anything has counted as a gain. The policy has hardly been trained, or"
    " the metric cannot gain as much as is asked.",
    "Write train.early_stopping.min_gain in the unit of train.metric (0.01 for a hundredth), raise"
    " train.early_stopping.patience, or evaluate less often (train.evaluate_every).",
    _look,
    phrase="early stopping ends the run too soon",
    follows=(
        "learning_rate_too_low",
        "learning_rate_too_high",
        "weights_unchanged",
        "weights_rewritten",
        "no_update",
        "reward_constant",
        "reward_ignores_answer",
        "reward_is_noise",
        "reward_follows_place",
        "reward_flat",
        "training_unlike_held_out",
        "judge_falls",
        "all_flat",
        "samples_alike",
        "exploration_too_strong",
        "divergence_holds",
        "policy_term_drowned",
    ),
)
