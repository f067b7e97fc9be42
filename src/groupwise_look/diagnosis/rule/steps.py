"""Updates that do nothing, and steps of the wrong size or direction: clips, learning rates, advantages, losses."""

from __future__ import annotations

from groupwise_look.diagnosis.rule.base import (
    Look,
    Seen,
    first_of,
    has_grown,
    need,
    newest,
    newest_of,
    number,
    present,
    rewards_rise,
    sees,
)
from groupwise_look.diagnosis.rule.movement import (
    CHANGE,
    first_loss,
    largest_change,
    last_loss,
    path,
    stands_still,
    unused,
)
from groupwise_look.diagnosis.rule.rising import EVALUATION_ERRORS, evaluations_rise, evaluations_stay, luck
from groupwise_look.diagnosis.series import WINDOW, Series
from groupwise_look.diagnosis.stage import Stage


def _off_policy(stage: Stage) -> tuple[Series, float]:
    """Returns the share of clipped decisions, and the share of updates in which the ratio could differ from one."""
    clipped, share = newest_of(stage, WINDOW, "clip_ratio/region_mean", "on_policy_share")
    return need(None if share.mean > 0.9 else (clipped, 1 - share.mean))


def _never_clips(stage: Stage) -> Seen | None:
    clipped, off_policy = _off_policy(stage)
    if max(clipped.values) > 0:
        return None
    spread = present(stage.last("ratio/p1"), stage.last("ratio/p99"))
    ratios = f" (1 % and 99 % of the ratios: {', '.join(map(format, spread))})" if spread else ""
    return Seen(
        f"In the last {WINDOW} steps the clip touched no decision, although {off_policy:.0%} of the updates were"
        f" off-policy{ratios}.",
        [clipped, *spread],
    )


def _mostly_clips(stage: Stage) -> Seen | None:
    clipped, off_policy = _off_policy(stage)
    # The first update on a batch has ratio one, and no clip acts on it. A region of no width stops all that earlier
    # updates of the batch moved as they should: half by chance, and more.
    if (share := min(1.0, clipped.mean / off_policy)) <= 0.5:
        return None
    sentence = (
        f"In the last {WINDOW} steps {share:.0%} of the decisions of off-policy updates were beyond the clip, and"
        f" {clipped:.0%} of all decisions"
    )
    kind = stage.setting("ratio.kind")
    if kind not in ("geometric", "arithmetic", "product") or clipped.mean > 0.5:
        return Seen(f"{sentence}.", [clipped])
    return Seen(
        f"{sentence}: ratio.kind = {kind} bounds a member as a whole.",
        [clipped],
        "note",
        "These bounds are narrower than one update, so the later updates of a batch act only on members that the first"
        " one moved the wrong way. The policy learns mostly from the first update of each batch.",
        "You need not do anything. train.updates_per_batch = 1 gives nearly the same in less time. To learn more from"
        " each batch, lower optimiser.learning_rate, or widen trust.low and trust.high (GSPO's bounds are made for"
        " answers of hundreds of tokens).",
    )


def _dead(sign: str, kind: str, other_sign: str, other_kind: str) -> Look:
    """Returns the look at decisions of one sign of advantage that give no gradient."""

    def look(stage: Stage) -> Seen | None:
        [share], other = (
            newest_of(stage, WINDOW, f"zero_gradient_fraction/{sign}"),
            stage.last(f"zero_gradient_fraction/{other_sign}"),
        )
        if share.mean <= 0.5:
            return None
        beside = f" ({other:.0%} of the {other_kind} ones)" if other else ""
        return Seen(
            f"{share:.0%} of the decisions of {kind} members gave no gradient in the last {WINDOW} steps{beside}.",
            [share, *present(other)],
        )

    return look


def _ratios_spread(stage: Stage) -> Seen | None:
    low, high, sample, share = newest_of(stage, 5, "ratio/p1", "ratio/p99", "effective_sample_size", "on_policy_share")
    # Off-policy: what one batch's updates do to the ratios of that very batch.
    wide = sample.mean < 0.8 and (high.mean > 3 or low.mean < 1 / 3)
    if share.mean >= 0.9 or not (sample.mean < 0.5 or wide):
        return None
    return Seen(
        f"Within one batch the ratios range from {low} to {high} (quantiles of 1 % and 99 %), and the effective sample"
        f" size is {sample}.",
        [low, high, sample],
    )


def _broken_by_a_step(stage: Stage) -> Seen | None:
    """Judges the weights themselves: an update that changes a twentieth of them, with which the reward broke
    down below where it began.
    """
    change = need(largest_change(stage, 5))
    if change.mean < 0.05:
        return None
    sentence = f"An update changed the weights by {number(100 * change.mean)} % of their size"
    first, spread, last = stage.first("reward", 1), stage.first("reward_std", 1), stage.last("reward", 5)
    if first is None or spread is None or last is None:
        loss = need(stage.ends("loss_sup", 5))
        if change.mean < 0.1 or loss[0].above(loss[1]):
            return None
        return Seen(f"{sentence}, and the supervised loss has not fallen.", [change, *loss])
    if stage.num_steps < 10:
        return None
    if last.mean < first.mean - 0.5 * spread.mean:
        return Seen(f"{sentence}, and the reward fell from {first} in the first step to {last}.", [change, first, last])
    # Evaluations know better than one step where the reward began: a fall as large as is asked of training, and beyond
    # luck. Where all groups of that step were flat, nothing says how large that is.
    least = max(0.5 * spread.mean, EVALUATION_ERRORS * luck(stage))
    for seen in stage.evaluated_rewards() if spread.mean > 0 else ():
        start, now = seen.values[0], seen.values[-1]
        if start - now > least:
            return Seen(
                f"{sentence}, and the reward of the evaluations fell from {number(start)} to {number(now)}.",
                [change, seen],
            )
    return None


def _worse_in_every_term(stage: Stage) -> Seen | None:
    """Judges whether steps go down any term of the loss: beside a reward that neither rises nor is evaluated higher,
    the supervised loss has doubled, while updates have grown and the learning rate has not. A step of the right size
    lowers what it is the gradient of.
    """
    start, loss, reward = need(first_loss(stage, 5)), need(last_loss(stage, WINDOW)), need(stage.ends("reward"))
    change, rate = first_of(stage, 5, CHANGE, "learning_rate")
    grown, fallen = newest_of(stage, WINDOW, CHANGE, "learning_rate")
    doubled = loss.mean >= 2.0 * start.mean and loss.above(start)
    if not doubled or not grown.above(change) or fallen.mean > rate.mean:
        return None
    if reward[1].above(reward[0]) or not evaluations_stay(stage):
        return None
    return Seen(
        f"Updates changed the weights by {change} of their size at first and by {grown} now, at no higher learning"
        f" rate; the supervised loss rose from {start} to {loss}, and the reward has not risen ({reward[0]} at first,"
        f" {reward[1]} now).",
        [change, grown, start, loss, *reward],
        means="A step of the right size lowers the loss. These steps raise every term of it, and they grow. They"
        " overshoot, or they follow the gradient of something else.",
        advice="Take a tenth of optimiser.learning_rate, or set optimiser.warm_up_steps. If that does not help, compute"
        " the gradient of one batch twice from the same weights: both must be equal.",
    )


def _falls_with_the_rate(stage: Stage) -> Seen | None:
    """Judges a reward that fell after its best window, where the learning rate is higher than it was then."""
    [last], [now], best = newest_of(stage, WINDOW, "reward"), newest_of(stage, 5, "learning_rate"), stage.windows.best
    [spread], [first] = first_of(stage, WINDOW, "reward_std"), first_of(stage, 2 * WINDOW, "learning_rate")
    if best is None or not best.above(last, errors=4.0) or best.mean - last.mean < 0.5 * spread.mean:
        return None
    then = [rate for step, rate in zip(first.steps, first.values, strict=True) if step in best.steps]
    if not then or now.mean < 2.0 * max(then):
        return None
    return Seen(
        f"In steps {best.steps[0]} to {best.steps[-1]}, at a learning rate of {number(max(then))} at most, the reward"
        f" was {best}; at {now} it is {last}.",
        [best, last, now],
        advice="Let the schedule of optimiser.learning_rate stop rising before that, or fall.",
    )


def _turns_deterministic(stage: Stage) -> Seen | None:
    # On-policy: how fast the sampler itself turns deterministic.
    (start, last), missed = need(stage.ends("surprisal", 5)), need(unused(stage, 5))
    if stage.num_steps > 2 * WINDOW or min(start.values) <= 0 or last.mean > 0.1 * start.values[0]:
        return None
    return Seen(
        f"Within {stage.num_steps} steps the surprisal of what is sampled fell from {number(start.values[0])} to {last}"
        f" nats a decision. The reward is {missed[1]}; at the start the best member of a group earned {missed[0]}.",
        [start, last, *missed],
    )


def _rate_is_zero(stage: Stage) -> Seen | None:
    # A schedule that lasts as long as its stage reaches 0 in its last step alone.
    [rate], [first] = newest_of(stage, WINDOW, "learning_rate"), first_of(stage, 1, "learning_rate")
    if any(rate.values):
        return None
    return Seen(
        f"The learning rate has been 0 for {WINDOW} steps ({first} in the first step).",
        [first, rate],
        "note" if stage.windows.risen or rewards_rise(stage) else None,
        "No update changes anything: the schedule of the learning rate ended before the stage did, or is 0.",
        "Let the schedule of optimiser.learning_rate last as many steps as the stage (num_steps), or end above 0.",
    )


def _went_nowhere(stage: Stage) -> bool:
    """Returns whether the weights' way is too short to have changed anything, or the policy stands still."""
    way, steps = path(stage), stage.num_steps
    if way is not None and way < 3e-4 and steps >= 2 * WINDOW:
        return True
    # Of densities without a KL nothing else tells whether the policy has moved, if no evaluation has risen either.
    untold = stage.count("surprisal") == stage.count("kl") == 0 and not evaluations_rise(stage)
    short = way is not None and way < 2e-3 and untold
    return steps >= 3 * WINDOW and (short or stands_still(stage))


def _hardly_moved(stage: Stage) -> Seen | None:
    reward, [rate] = need(stage.ends("reward")), newest_of(stage, WINDOW, "learning_rate")
    if reward[1].above(reward[0]) or not _went_nowhere(stage):
        return None
    surprisal, kl, way = stage.ends("surprisal"), stage.last("kl"), path(stage)
    movements = [f"surprisal {surprisal[0]} at first, {surprisal[1]} now"] if surprisal else []
    movements += [f"KL {kl} nats a decision"] if kl else []
    movements += [f"all changes of the weights {number(way)} of their size"] if way is not None else []
    return Seen(
        f"In {stage.num_steps} steps with updates (learning rate {rate}) the policy has not moved:"
        f" {', '.join(movements)}; reward {reward[0]} at first, {reward[1]} now.",
        [rate, *(surprisal or ()), *present(kl, stage.last(CHANGE, 5)), *reward],
    )


def _one_sided(stage: Stage) -> Seen | None:
    mean, spread = newest_of(stage, WINDOW, "advantages_mean", "advantages_std")
    # Ones and zeros: it counts what was accepted, and has no baseline.
    if stage.setting("advantage.kind") == "accepted":
        return None
    if spread.mean <= 0 or abs(mean.mean) <= 0.5 * spread.mean:
        return None
    side = "better" if mean.mean > 0 else "worse"
    return Seen(
        f"In the last {WINDOW} steps advantages had mean {mean} and spread {spread}: most count as {side} than the"
        " baseline.",
        [mean, spread],
    )


def _scale(stage: Stage) -> Seen | None:
    spread, flat = newest_of(stage, WINDOW, "advantages_std", "frac_reward_zero_std")
    if flat.mean > 0.9:
        return None
    # Flat groups have advantage 0; the others' spread is what counts.
    size = spread.mean / (1 - flat.mean) ** 0.5
    others = [stage.last(name) for name in ("loss_kl", "loss_sup", "loss_cons", "loss_l2")]
    terms = [term for term in others if term is not None and term.mean != 0]
    sentence = f"Advantages of groups that differ have a spread of {number(size)}"
    if size > 10:
        return Seen(f"{sentence}.", [spread])
    if size < 0.05 and terms:
        beside = ", ".join(f"{term.metric} {term}" for term in terms)
        return Seen(f"{sentence}, beside other terms of the loss ({beside}).", [spread, *terms])
    return None


def _loss_grows(stage: Stage) -> Seen | None:
    start, last = need(stage.ends("loss_pg"))
    share, spread = newest_of(stage, WINDOW, "on_policy_share", "advantages_std")
    if share.mean > 0.9 or last.mean <= 0 or last.mean < 3 * abs(start.mean):
        return None
    if last.mean - start.mean < 0.05 * spread.mean or not last.above(start, errors=4.0):
        return None
    return Seen(f"The policy loss went from {start} to {last}.", [start, last])


def _supervised(stage: Stage) -> Seen | None:
    start, last = need(first_loss(stage, WINDOW)), need(last_loss(stage, WINDOW))
    count = stage.count("loss_sup")
    if count < 3 * WINDOW:
        return None
    if stage.first("reward", 1) is None:
        if start.above(last):
            return None
        return Seen(
            f"The supervised loss has not fallen in {count} steps: {start} at first, {last} now.",
            [start, last, *present(stage.last("learning_rate"))],
        )
    if not has_grown(start, last):
        return None
    # Where the reward rises, that is what the policy term was to do.
    return Seen(
        f"Beside the policy term the supervised loss rose from {start} to {last}.",
        [start, last],
        "note" if rewards_rise(stage) or evaluations_rise(stage) else None,
        advice="Raise auxiliary.supervised, lower optimiser.learning_rate or policy_weight, or make the supervised"
        " stage longer.",
    )


def _consistency(stage: Stage) -> Seen | None:
    [last], before = newest_of(stage, WINDOW, "loss_cons"), need(stage.before("loss_cons"))
    earlier = need(stage.before("loss_cons", skip=2 * WINDOW))
    reward, reward_before = stage.last("reward"), stage.before("reward")
    # Every consistency loss begins at 0 and rises; where the policy has hardly moved that is all it is.
    if not has_grown(before, last, 1.25) or not before.above(earlier) or stands_still(stage):
        return None
    if reward and reward_before and reward.above(reward_before):
        return None
    return Seen(
        f"The consistency loss rose from {earlier} over {before} to {last} in the last {3 * WINDOW} steps, and the"
        " reward did not rise with it.",
        [earlier, before, last, *present(reward)],
    )


def _not_finite(stage: Stage) -> Seen | None:
    broken, taken, skipped = newest_of(stage, 5, "updates/not_finite", "updates/taken", "updates/skipped")
    count = sum(broken.values)
    if count == 0 or (share := count / sum(map(sum, (broken.values, taken.values, skipped.values)))) < 0.1:
        return None
    return Seen(
        f"{share:.0%} of the updates of the last 5 steps had a gradient that was NaN or infinite, and were left out.",
        [broken, taken],
    )


def _no_update(stage: Stage) -> Seen | None:
    taken = need(stage.last("updates/taken"))
    broken, flat = stage.last("updates/not_finite"), stage.last("frac_reward_zero_std")
    if sum(taken.values) > 0:
        return None
    because = "every gradient was zero"
    if broken and broken.mean > 0:
        because = "every gradient was NaN or infinite"
    elif flat and flat.mean > 0.95:
        because = "every group was flat"
    return Seen(f"None of the last {WINDOW} steps updated the policy: {because}.", [taken, *present(broken, flat)])


def _round_away(stage: Stage) -> Seen | None:
    stuck, rate = newest_of(stage, WINDOW, "weights/stuck", "learning_rate")
    if not 0.5 <= stuck.mean < 1 or min(rate.values) <= 0:
        return None
    return Seen(
        f"At a learning rate of {rate}, {stuck:.0%} of the weights with a gradient were the same after an update as"
        f" before, over the last {WINDOW} steps.",
        [stuck, rate],
        "note" if stage.windows.risen or rewards_rise(stage) else None,
    )


def _rewritten(stage: Stage) -> Seen | None:
    # The metric is there only where something wrote, so that no number of quiet steps takes it back.
    moved, change = first_of(stage, 3, "weights/rewritten", CHANGE)
    return Seen(
        f"Something moved the weights between updates, {stage.count('weights/rewritten')} times so far: the first 3"
        f" times by {moved:.1e} of their size, while an update itself moved them by {change:.1e}.",
        [moved, change],
    )


LOOKS = {
    "clip_never_acts": [_never_clips],
    "clip_mostly_acts": [_mostly_clips],
    "dead_negatives": [_dead("negative", "bad", "positive", "good")],
    "dead_positives": [_dead("positive", "good", "negative", "bad")],
    "learning_rate_too_high": [
        _ratios_spread,
        _broken_by_a_step,
        _worse_in_every_term,
        _falls_with_the_rate,
        _turns_deterministic,
    ],
    "learning_rate_too_low": [_rate_is_zero, _hardly_moved],
    "advantage_turned": [
        sees(
            "In the last 20 steps the correlation of rewards and advantages inside groups was {agreement}.",
            lambda s: s.agreement.mean + 2 * s.agreement.error < -0.2,
            agreement=newest("advantages/agreement"),
        )
    ],
    "advantage_one_sided": [_one_sided],
    "advantage_scale": [_scale],
    "policy_loss_grows": [_loss_grows],
    "supervised_not_falling": [_supervised],
    "consistency_creep": [_consistency],
    "not_finite": [_not_finite],
    "no_update": [_no_update],
    "weights_unchanged": [
        sees(
            "The optimiser stepped at a learning rate of {rate}, and no weight changed in the last 10 steps with an"
            " update.",
            lambda s: max(s.changes.values) <= 1e-12 and min(s.rate.values) > 0,
            changes=newest(CHANGE, 10),
            rate=newest("learning_rate", 10),
        )
    ],
    "steps_round_away": [_round_away],
    "weights_rewritten": [_rewritten],
}
