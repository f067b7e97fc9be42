"""Runs that get nowhere: they are slow, end early, sample from another policy, or their reward stands or falls."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.diagnosis.rule.base import Rule, Seen, first_of, need, newest_of
from groupwise.diagnosis.rule.movement import CHANGE, dwindled, stands_still
from groupwise.diagnosis.rule.rising import Rise, evaluations_stay, rise
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage


def _slow(stage: Stage) -> Seen | None:
    steps, rewards = newest_of(stage, 3, "step_time", "seconds/rewards")
    if steps.mean < 1.0 or rewards.mean < 0.75 * steps.mean:
        return None
    sentence = f"Rewards take {rewards} of the {steps} seconds of a step"
    limit, meant = stage.setting("train.max_seconds"), stage.planned_steps
    if not isinstance(limit, int | float) or not meant or steps.mean * meant <= 2 * limit:
        return Seen(f"{sentence}.", [steps, rewards])
    return Seen(
        f"{sentence}, so that the {limit:.3g} seconds of train.max_seconds hold about {limit / steps.mean:.0f} of"
        f" {meant} steps.",
        [steps, rewards],
        "warning",
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
    return Seen(
        f"Early stopping ends the stage after {patience} evaluations without a gain:"
        f" {goal.metric.removeprefix('eval/')} gained {most:.3g} at most, and more than {least:.3g} counts"
        " (train.early_stopping.min_gain).",
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
        if now > then + 0.01 * abs(then):
            return Seen(
                f"Early stopping ends the stage because {goal.metric.removeprefix('eval/')} has gained nothing since"
                f" step {goal.steps[best]}, while {seen.metric.removeprefix('eval/')} rose from {then:.3g} to"
                f" {now:.3g}.",
                [goal, seen],
                means="The metric that early stopping watches stands still, but the policy still learns to earn more.",
                advice="Look at train.metric and train.metric_goal: do they measure what you want? If so, raise"
                " train.early_stopping.patience.",
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
    return Seen(
        f"The reward rose from {start} to {last} on training prompts that were drawn {epoch:.0f} times, while"
        f" {seen.metric.removeprefix('eval/')} of the evaluations went from {seen.values[0]:.3g} to"
        f" {seen.values[-1]:.3g}.",
        [start, last, seen],
    )


def _drifts(stage: Stage) -> Seen | None:
    metric = "sampling/sampling_logp_difference/mean"
    [start], [newest] = first_of(stage, 1, metric), newest_of(stage, 3, metric)
    # Truncation by top-p makes a difference as well, from the first step on and of about the same size.
    if stage.count(metric) <= 3 or min(newest.values) < max(0.02, 10.0 * start.mean):
        return None
    return Seen(
        f"The sampler's log-probs differ from the policy's by {newest} nats a decision; in the first step by {start}.",
        [start, newest],
    )


def _rescored_apart(stage: Stage) -> Seen | None:
    [gap] = newest_of(stage, 3, "sampling/rescoring_difference/mean")
    bounds = [stage.setting(f"objective.trust.{side}") for side in ("low", "high")]
    width = min((bound for bound in bounds if isinstance(bound, int | float) and bound > 0), default=0.2)
    # Of log-probs of up to ten nats fp32's unit in the last place is 9.5e-7: no two passes agree better.
    if gap.mean <= max(0.1 * width, 1e-6):
        return None
    return Seen(
        f"Scored again before its first update, the policy is {gap} nats a decision away from what was recorded while"
        f" it sampled; the trust region is {width:.3g} wide.",
        [gap],
    )


def _ratios_apart(stage: Stage) -> Seen | None:
    share, low, high = newest_of(stage, 3, "on_policy_share", "ratio/p1", "ratio/p99")
    if share.mean != 1 or (high.mean <= 1.05 and low.mean >= 0.95):
        return None
    return Seen(
        f"With one update a batch every ratio should be 1, but 1 % of them are below {low} and 1 % above {high}.",
        [low, high],
    )


def _always_one(stage: Stage) -> Seen | None:
    share, equal, change = newest_of(stage, 3, "on_policy_share", "on_policy_fraction", CHANGE)
    surprisal = stage.last("surprisal", 3)
    # Below this surprisal log-probs may be exactly 0 before an update and after it.
    if surprisal is not None and surprisal.mean < 1e-3:
        return None
    if max(share.values) > 0.9 or min(equal.values) < 0.99 or min(change.values) < 1e-5:
        return None
    return Seen(
        f"{1 - share.mean:.0%} of the updates were made after another on the same batch had changed the weights by"
        f" {change} of their size, and {equal:.0%} of the log-ratios are exactly 0.",
        [share, equal, change],
    )


_LONG = 100
"""Steps from which on 40 at each end are compared, and no evaluation is asked."""


def _flat(stage: Stage) -> Seen | None:
    count, seen = stage.count("reward"), need(_rise(stage))
    if count < 2 * WINDOW or not seen.is_none or stands_still(stage):
        return None
    # A reward that had risen and stays is at its end, not flat.
    if stage.windows.risen or _all_flat(stage):
        return None
    # Over few steps a small rise that is seen is one.
    if count < _LONG and (seen.last.above(seen.start) or not evaluations_stay(stage)):
        return None
    sentence = (
        f"The reward has not risen in {count} steps: {seen.start} at first, {seen.last} now (a rise of"
        f" {seen.most:.3g} at most)."
    )
    if (steps := dwindled(stage, 5)) is None:
        return Seen(sentence, seen.evidence)
    return Seen(
        f"{sentence} Updates changed the weights by {steps[0]} of their size at first, and by {steps[1]} now, at a"
        " gradient of the same size.",
        [*seen.evidence, *steps],
        "note",
        "The policy has stopped moving, whatever it earns. The optimiser divides by larger gradients from before,"
        " mostly from an earlier stage; only its momentum moved the weights at first.",
        "Begin the stage with new moments (optimiser.moments), or take ten times optimiser.learning_rate. If the loss"
        " is divided by a fixed length, set aggregation.length to that of the answers.",
    )


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
    [last], [spread] = newest_of(stage, WINDOW, "reward"), first_of(stage, WINDOW, "reward_std")
    start, best = need(stage.windows.first), need(stage.windows.best)
    fall = best.mean - last.mean
    # The best of many windows is high by luck: four errors, half of the gain, and a quarter of the spread inside a
    # group.
    if not best.above(last, errors=4.0) or fall < 0.5 * (best.mean - start.mean) or fall < 0.25 * spread.mean:
        return None
    return Seen(f"The reward fell from {best} (steps {best.steps[0]} to {best.steps[-1]}) to {last}.", [best, last])


def _evaluations_fall(stage: Stage) -> Seen | None:
    """Judges the evaluations of a stage too short for windows, or whose reward fell with its first steps; a fall that
    no luck of the evaluation's prompts explains.
    """
    [spread] = first_of(stage, 5, "reward_std")
    for seen in stage.evaluated:
        start, last = seen.values[0], seen.values[-1]
        if seen.metric.endswith("/reward") and start - last > max(spread.mean, 0.1 * abs(start)):
            return Seen(f"The reward of the evaluations fell from {start:.3g} to {last:.3g}.", [seen, spread])
    return None


RULES = (
    Rule(
        "rewards_are_slow",
        "note",
        "Why are my steps slow?",
        "step_time seconds/rewards",
        "over 3 steps of 1 s or more, rewards take at least 75% of the time. This is a warning if `train.max_seconds`"
        " ends the stage before half of its steps",
        "The policy waits for its rewards: they are computed one after another, or by a slow or distant service.",
        "Score a batch in one call, or answer the calls of a batch at the same time (an async function). Cache what"
        " repeats. Or raise train.max_seconds.",
        "rewards take nearly all of the time",
        [_slow],
    ),
    Rule(
        "stopped_early",
        "warning",
        "Why did my run end so early?",
        "eval/NAME",
        "`train.early_stopping` is set, and as many evaluations as its patience have passed in which the metric never"
        " exceeded its first value by more than min_gain; or in which it never exceeded its best value, while the"
        " reward of the evaluations rose by more than 0.01 of its value",
        "Early stopping ends the stage before anything has counted as a gain. The policy has hardly been trained, or"
        " the metric cannot gain as much as is asked.",
        "Write train.early_stopping.min_gain in the unit of train.metric (0.01 for a hundredth), raise"
        " train.early_stopping.patience, or evaluate less often (train.evaluate_every).",
        "early stopping ends the run too soon",
        [_stopped],
        causes=(
            "learning_rate_too_low learning_rate_too_high weights_unchanged weights_rewritten no_update"
            " reward_constant reward_ignores_answer reward_is_noise reward_follows_place reward_flat"
            " training_unlike_held_out judge_falls all_flat samples_alike exploration_too_strong divergence_holds"
            " policy_term_drowned"
        ),
    ),
    Rule(
        "learns_by_heart",
        "warning",
        "Why does my reward rise and the evaluation not?",
        "epoch reward reward_std eval/NAME",
        "after 5 passes over the prompts the reward has risen by more than two standard errors and by 0.25 of its"
        " first spread inside groups, but the reward of the evaluations is not above its first value",
        "The policy learns these prompts by heart: what it learns does not carry over to prompts that it has not seen.",
        "Train on more prompts, stop at the step of the best evaluation (`best/`), or set divergence.beta above 0.",
        "the policy learns its prompts by heart",
        [_by_heart],
        causes=(
            "held_out_unlike_training average_lags judge_falls judge_disagrees prompts_come_back evaluation_repeats"
        ),
    ),
    Rule(
        "generator_drifts",
        "fault",
        "Is the server sampling from the model that is trained?",
        "sampling/sampling_logp_difference/mean",
        "in each of the last 3 steps, the log-probs of the sampler and of the trained policy differ by at least 10"
        " times as much as in the first step and by 0.02 nats",
        "The generator does not receive the trained weights: an older policy earns the rewards, and updates change a"
        " policy that does not sample.",
        'Leave domain.engine.sync unset, so that the servers receive the weights. With domain.engine.sync = "none",'
        " send them yourself after every update, or correct for the lag with method = METHOD+tis.",
        "the generator does not sample from the trained weights",
        [_drifts],
    ),
    Rule(
        "ratio_not_one",
        "fault",
        "Why is the ratio not 1 at the first update?",
        "sampling/rescoring_difference/mean on_policy_share ratio/p1 ratio/p99",
        "over 3 steps the log-probs of the first update differ from the recorded ones by more than fp32 rounding"
        " (1e-06) and by more than a tenth of the trust region's width (0.2 if it has none); or, with one update a"
        " batch, 1 % of the ratios are below 0.95, or 1 % above 1.05",
        "The sampler and the trainer do not have the same policy. The causes are dropout while training, another"
        " temperature or template, stale weights in a server, or lower precision. Every ratio is wrong by this"
        " difference, so the clip acts on the wrong decisions.",
        "Set dropout to 0, score at the sampling temperature, send the sampler the newest weights, or set"
        " train.autocast = none. Or correct for the difference: method=NAME+tis.",
        "the first update is not on the policy that sampled",
        [_rescored_apart, _ratios_apart],
        causes="generator_drifts",
    ),
    Rule(
        "ratio_always_one",
        "fault",
        "Why is the ratio 1 in every update?",
        "on_policy_share on_policy_fraction weights/change surprisal",
        "in each of the last 3 steps at most 90% of the updates were the first on their batch, at least 99% of the"
        " log-ratios were exactly 0, and updates changed the weights by 1e-05 of their size (silent at a surprisal"
        " below 0.001 nats a decision, where a sure policy's log-probs stay exactly 0)",
        "The ratio compares the policy with itself: the old log-probs are not those of the time of sampling, but are"
        " computed anew in every update. So no trust region acts, and nothing bounds how far later updates of a batch"
        " move the policy.",
        "Compute the log-probs of the samples once, before the first update on them, and compare every update with"
        " these. Or set train.updates_per_batch = 1 and train.minibatches = 1.",
        "the ratio compares the policy with itself",
        [
            _always_one,
        ],
        # What later updates do without a bound may have ended them: a stage of flat groups has none.
        ended=lambda stage: False,
    ),
    Rule(
        "reward_flat",
        "warning",
        "Why is my reward flat?",
        "reward reward_std rewards_std kl completions/mean_length eval/NAME learning_rate grad_norm weights/change",
        "groups differ and the policy moves, but the reward has not risen. From step 100 on: even with two standard"
        " errors added, the rewards of the last 40 steps exceed those of the first 40 by less than 0.1 of the spread"
        " inside groups (with a KL to a frozen reference: by less than 0.15 of the spread, times sqrt(2 KL of a"
        " member) if that is below 1). From step 40 on: the same holds between the first and the last 20 steps, their"
        " difference is within two standard errors, and the newest evaluations of the reward exceed the first by no"
        " more than a hundredth or 2 standard errors. This is only a note if updates per unit of learning rate have"
        " shrunk to a tenth, while the gradient is at least half as large as at first",
        "Groups differ and the policy changes, but the reward does not rise: noise drowns the gradient, or the reward"
        " pays for something that cannot be learnt.",
        "Take more members (train.group_size or train.prompts_per_step), a reward with more levels, or an"
        " optimiser.learning_rate that is three times higher or lower. Look at members with `groupwise check` and in"
        " rollouts/.",
        "the reward does not rise",
        [
            _flat,
        ],
        causes=(
            "learning_rate_too_low advantage_turned decisions_left_out reference_elsewhere divergence_negative"
            " prompts_truncated reward_follows_place reward_is_noise training_unlike_held_out weights_unchanged"
            " weights_rewritten admission_rejects exploration_too_strong divergence_holds policy_term_drowned"
            " too_few_members policy_becomes_random reward_dominates all_flat no_update all_truncated"
            " reward_missing generator_drifts ratio_not_one ratio_always_one steps_round_away clip_mostly_acts"
            " entropy_collapse"
        ),
        ended=_is_no_longer_flat,
    ),
    Rule(
        "reward_falls",
        "warning",
        "Why did my reward collapse?",
        "reward reward_std eval/NAME",
        "the reward of the last 20 steps lies below that of the best 20 by four standard errors, by half of what was"
        " gained, and by a quarter of the first spread inside groups; or the reward of the evaluations has fallen from"
        " its first value by more than a tenth of it and by more than that spread",
        "The policy has lost what it had learnt. The cause is nearly always steps that are too large, and sometimes a"
        " reward or prompts that changed during the run.",
        "Lower optimiser.learning_rate (or let its schedule fall), lower train.max_grad_norm, take fewer"
        " train.updates_per_batch, or set divergence.beta above 0. `best/` holds the best model.",
        "the reward falls",
        [_falls, _evaluations_fall],
        causes=(
            "weights_rewritten advantage_turned decisions_left_out reference_elsewhere divergence_negative"
            " held_out_unlike_training learning_rate_too_high training_unlike_held_out prompts_truncated"
            " reward_follows_place reward_is_noise reward_flat weight_decay_too_high policy_becomes_random"
            " policy_term_drowned too_few_members samples_alike exploration_too_strong not_finite"
            " generator_drifts ratio_not_one ratio_always_one prompts_come_back entropy_collapse all_truncated"
        ),
        steps="smaller",
    ),
)
