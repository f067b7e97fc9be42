"""Updates that do nothing, and steps of the wrong size or direction: clips, learning rates, advantages, losses."""

from groupwise_look.diagnosis.rule.base import (
    Look,
    Seen,
    first_of,
    has_grown,
    need,
    newest,
    newest_of,
    present,
    rewards_rise,
    saw,
    sees,
)
from groupwise_look.diagnosis.rule.movement import (
    CHANGE,
    first_loss,
    has_hardly_moved,
    largest_change,
    last_loss,
    missed_gain,
    path,
)
from groupwise_look.diagnosis.rule.rising import EVALUATION_ERRORS, evaluation_error, evaluations_rise, evaluations_stay
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
    return saw("", [clipped, *spread], off_policy=off_policy, ratios=ratios)


def _mostly_clips(stage: Stage) -> Seen | None:
    clipped, off_policy = _off_policy(stage)
    # The first update on a batch has ratio one, and no clip acts on it. A region of no width stops all that earlier
    # updates of the batch moved as they should: half by chance, and more.
    if (share := min(1.0, clipped.mean / off_policy)) <= 0.5:
        return None
    kind = stage.setting("ratio.kind")
    if kind not in ("geometric", "arithmetic", "product") or clipped.mean > 0.5:
        return saw("", [clipped], share=share, clipped=clipped)
    return saw("whole", [clipped], "note", share=share, clipped=clipped, kind=kind)


def _without_gradient(sign: str, kind: str, other_sign: str, other_kind: str) -> Look:
    """Returns the look at decisions of one sign of advantage that give no gradient."""

    def look(stage: Stage) -> Seen | None:
        [share], other = (
            newest_of(stage, WINDOW, f"zero_gradient_fraction/{sign}"),
            stage.last(f"zero_gradient_fraction/{other_sign}"),
        )
        if share.mean <= 0.5:
            return None
        beside = f" ({other:.0%} of the {other_kind} ones)" if other else ""
        return saw("", [share, *present(other)], share=share, kind=kind, beside=beside)

    return look


def _ratios_spread(stage: Stage) -> Seen | None:
    low, high, sample, share = newest_of(stage, 5, "ratio/p1", "ratio/p99", "effective_sample_size", "on_policy_share")
    # Off-policy: what one batch's updates do to the ratios of that very batch.
    wide = sample.mean < 0.8 and (high.mean > 3 or low.mean < 1 / 3)
    # Share 0: members of a file, whose ratios compare with whoever drew them.
    if share.mean >= 0.9 or share.mean == 0 or not (sample.mean < 0.5 or wide):
        return None
    return saw("ratios", [low, high, sample], low=low, high=high, sample=sample)


def _broken_by_a_step(stage: Stage) -> Seen | None:
    """Judges single updates: one of them changed a twentieth of the weights or more, and the reward fell below its
    start.
    """
    change = need(largest_change(stage, 5))
    if change.mean < 0.05:
        return None
    percent = 100 * change.mean
    first, spread, last = stage.first("reward", 1), stage.first("reward_std", 1), stage.last("reward", 5)
    if first is None or spread is None or last is None:
        loss = need(stage.ends("loss_sup", 5))
        is_small = change.mean < 0.1 or loss[0].above(loss[1])
        return None if is_small else saw("broken_supervised", [change, *loss], percent=percent)
    if stage.num_steps < 10:
        return None
    if last.mean < first.mean - 0.5 * spread.mean:
        return saw("broken", [change, first, last], percent=percent, first=first, last=last)
    # Evaluations know better than one step where the reward began: a fall as large as is asked of training, and beyond
    # luck. Where all groups of that step were flat, nothing shows how large that is.
    least = max(0.5 * spread.mean, EVALUATION_ERRORS * evaluation_error(stage))
    for seen in stage.evaluated_rewards() if spread.mean > 0 else ():
        start, now = seen.values[0], seen.values[-1]
        if start - now > least:
            return saw("broken_evaluated", [change, seen], percent=percent, start=start, now=now)
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
    return saw(
        "every_term",
        [change, grown, start, loss, *reward],
        change=change,
        grown=grown,
        start=start,
        loss=loss,
        reward=reward,
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
    return saw(
        "with_the_rate", [best, last, now], best=best, last_step=best.steps[-1], highest=max(then), now=now, last=last
    )


def _turns_deterministic(stage: Stage) -> Seen | None:
    # On-policy: how fast the sampler itself turns deterministic.
    (start, last), missed = need(stage.ends("surprisal", 5)), need(missed_gain(stage, 5))
    if stage.num_steps > 2 * WINDOW or min(start.values) <= 0 or last.mean > 0.1 * start.values[0]:
        return None
    return saw("deterministic", [start, last, *missed], stage=stage, start=start, last=last, missed=missed)


def _rate_is_zero(stage: Stage) -> Seen | None:
    # A schedule that lasts as long as its stage reaches 0 in its last step alone.
    [rate], [first] = newest_of(stage, WINDOW, "learning_rate"), first_of(stage, 1, "learning_rate")
    if any(rate.values):
        return None
    return saw("zero", [first, rate], "note" if stage.windows.risen or rewards_rise(stage) else None, first=first)


def _went_nowhere(stage: Stage) -> bool:
    """Returns whether the weights' way is too short to have changed anything, or the policy stands still."""
    way, steps = path(stage), stage.num_steps
    if way is not None and way < 3e-4 and steps >= 2 * WINDOW:
        return True
    # A density without a KL has no measure of movement but its evaluations.
    is_unmeasured = stage.count("surprisal") == stage.count("kl") == 0 and not evaluations_rise(stage)
    short = way is not None and way < 2e-3 and is_unmeasured
    return steps >= 3 * WINDOW and (short or has_hardly_moved(stage))


def _hardly_moved(stage: Stage) -> Seen | None:
    reward, [rate] = need(stage.ends("reward")), newest_of(stage, WINDOW, "learning_rate")
    if reward[1].above(reward[0]) or not _went_nowhere(stage):
        return None
    surprisal, kl, way = stage.ends("surprisal"), stage.last("kl"), path(stage)
    movements = [f"surprisal {surprisal[0]} at first, {surprisal[1]} now"] if surprisal else []
    movements += [f"KL {kl} nats a decision"] if kl else []
    movements += [f"all changes of the weights {way:.3g} of their size"] if way is not None else []
    return saw(
        "still",
        [rate, *(surprisal or ()), *present(kl, stage.last(CHANGE, 5)), *reward],
        stage=stage,
        rate=rate,
        movements=", ".join(movements),
        reward=reward,
    )


def _one_sided(stage: Stage) -> Seen | None:
    mean, spread = newest_of(stage, WINDOW, "advantages_mean", "advantages_std")
    # Ones and zeros: it counts what was accepted, and has no baseline.
    if stage.setting("advantage.kind") == "accepted":
        return None
    if spread.mean <= 0 or abs(mean.mean) <= 0.5 * spread.mean:
        return None
    side = "better" if mean.mean > 0 else "worse"
    return saw("", [mean, spread], mean=mean, spread=spread, side=side)


def _scale(stage: Stage) -> Seen | None:
    spread, flat = newest_of(stage, WINDOW, "advantages_std", "frac_reward_zero_std")
    if flat.mean > 0.9:
        return None
    # Flat groups have advantage 0; the others' spread is what counts.
    size = spread.mean / (1 - flat.mean) ** 0.5
    others = [stage.last(name) for name in ("loss_kl", "loss_sup", "loss_cons", "loss_l2")]
    terms = [term for term in others if term is not None and term.mean != 0]
    if size > 10:
        return saw("large", [spread], size=size)
    if size < 0.05 and terms:
        beside = ", ".join(f"{term.metric} {term}" for term in terms)
        return saw("small", [spread, *terms], size=size, beside=beside)
    return None


def _loss_grows(stage: Stage) -> Seen | None:
    start, last = need(stage.ends("loss_pg"))
    share, spread = newest_of(stage, WINDOW, "on_policy_share", "advantages_std")
    if share.mean > 0.9 or last.mean <= 0 or last.mean < 3 * abs(start.mean):
        return None
    if last.mean - start.mean < 0.05 * spread.mean or not last.above(start, errors=4.0):
        return None
    return saw("", [start, last], start=start, last=last)


def _supervised(stage: Stage) -> Seen | None:
    start, last = need(first_loss(stage, WINDOW)), need(last_loss(stage, WINDOW))
    count = stage.count("loss_sup")
    if count < 3 * WINDOW:
        return None
    if stage.first("reward", 1) is None:
        if start.above(last):
            return None
        return saw("alone", [start, last, *present(stage.last("learning_rate"))], count=count, start=start, last=last)
    if not has_grown(start, last):
        return None
    # Where the reward rises, that is what the policy term was to do.
    return saw(
        "beside",
        [start, last],
        "note" if rewards_rise(stage) or evaluations_rise(stage) else None,
        start=start,
        last=last,
    )


def _consistency(stage: Stage) -> Seen | None:
    [last], before = newest_of(stage, WINDOW, "loss_cons"), need(stage.before("loss_cons"))
    earlier = need(stage.before("loss_cons", skip=2 * WINDOW))
    reward, reward_before = stage.last("reward"), stage.before("reward")
    # Every consistency loss begins at 0 and rises; where the policy has hardly moved that is all it is.
    if not has_grown(before, last, 1.25) or not before.above(earlier) or has_hardly_moved(stage):
        return None
    if reward and reward_before and reward.above(reward_before):
        return None
    return saw("", [earlier, before, last, *present(reward)], earlier=earlier, before=before, last=last)


def _not_finite(stage: Stage) -> Seen | None:
    broken, taken, skipped = newest_of(stage, 5, "updates/not_finite", "updates/taken", "updates/skipped")
    count = sum(broken.values)
    if count == 0 or (share := count / sum(map(sum, (broken.values, taken.values, skipped.values)))) < 0.1:
        return None
    return saw("", [broken, taken], share=share)


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
    return saw("", [taken, *present(broken, flat)], because=because)


def _round_away(stage: Stage) -> Seen | None:
    stuck, rate = newest_of(stage, WINDOW, "weights/stuck", "learning_rate")
    if not 0.5 <= stuck.mean < 1 or min(rate.values) <= 0:
        return None
    return saw(
        "",
        [stuck, rate],
        "note" if stage.windows.risen or rewards_rise(stage) else None,
        rate=rate,
        stuck=stuck,
    )


def _rewritten(stage: Stage) -> Seen | None:
    # The metric is there only where something wrote, so that no number of quiet steps takes it back.
    moved, change = first_of(stage, 3, "weights/rewritten", CHANGE)
    return saw("", [moved, change], count=stage.count("weights/rewritten"), moved=moved, change=change)


LOOKS = {
    "clip_never_acts": [_never_clips],
    "clip_mostly_acts": [_mostly_clips],
    "dead_negatives": [_without_gradient("negative", "bad", "positive", "good")],
    "dead_positives": [_without_gradient("positive", "good", "negative", "bad")],
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
            lambda s: max(s.changes.values) <= 1e-12 and min(s.rate.values) > 0,
            changes=newest(CHANGE, 10),
            rate=newest("learning_rate", 10),
        )
    ],
    "steps_round_away": [_round_away],
    "weights_rewritten": [_rewritten],
}
