"""Steps of the wrong size or direction: clips, learning rates, advantages and the terms of the loss."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import (
    Look,
    Rule,
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
from groupwise.diagnosis.rule.movement import (
    CHANGE,
    first_loss,
    largest_change,
    last_loss,
    path,
    stands_still,
    unused,
)
from groupwise.diagnosis.rule.rising import EVALUATION_ERRORS, evaluations_rise, evaluations_stay, luck
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage


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
    kind = stage.setting("objective.ratio.kind")
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
    if stage.setting("objective.advantage.kind") == "accepted":
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


RULES = (
    Rule(
        "clip_never_acts",
        "note",
        "Does the clip do anything?",
        "clip_ratio/region_mean on_policy_share ratio/p1 ratio/p99",
        "no decision was clipped in 20 steps, although more than a tenth of the updates were off-policy",
        "The policy moves less within a batch than the bounds allow, so the trust region has no effect on this run.",
        "You need not do anything. If learning is slow, raise optimiser.learning_rate or train.updates_per_batch. For"
        " a region that acts, narrow trust.low and trust.high.",
        "the bounds never act",
        [_never_clips],
        causes="learning_rate_too_low weights_unchanged ratio_always_one",
        steps="larger",
    ),
    Rule(
        "clip_mostly_acts",
        "warning",
        "Why is nearly everything clipped?",
        "clip_ratio/region_mean on_policy_share",
        "over 20 steps more than 50% of the decisions of off-policy updates are clipped. This is only a note if a"
        " member has one ratio as a whole and at most 50% of the decisions of all updates are clipped",
        "Most decisions give no gradient: the step is too large for the bounds, or the bounds do not fit the scale of"
        " the log-prob, as with decisions of many dimensions.",
        "Lower optimiser.learning_rate or train.updates_per_batch, widen trust.low and trust.high, or set another"
        " domain.reduce for many-dimensional decisions.",
        "nearly everything is clipped",
        [_mostly_clips],
        causes="learning_rate_too_high ratio_not_one",
        steps="smaller",
    ),
    Rule(
        "dead_negatives",
        "warning",
        "Why does the policy not unlearn its mistakes?",
        "zero_gradient_fraction/negative",
        "more than half of the decisions with a negative advantage have no gradient over 20 steps",
        "The policy learns from good members only, since most decisions of bad members have no gradient. A weight that"
        " multiplies the ratio before the clip does this from the first update on.",
        "Lower optimiser.learning_rate or train.updates_per_batch, widen the trust region on that side, or choose a"
        " region that keeps a gradient (method cispo, sapo).",
        "bad answers give no gradient",
        [_dead("negative", "bad", "positive", "good")],
        causes="clip_mostly_acts",
        steps="smaller",
    ),
    Rule(
        "dead_positives",
        "warning",
        "Why does the policy not learn from its successes?",
        "zero_gradient_fraction/positive",
        "more than half of the decisions with a positive advantage have no gradient over 20 steps",
        "Good members reach the upper bound early in their batch, so its other updates only make bad members less"
        " probable.",
        "Lower optimiser.learning_rate or train.updates_per_batch, widen the trust region on that side, or choose a"
        " region that keeps a gradient (method cispo, sapo).",
        "good answers give no gradient",
        [_dead("positive", "good", "negative", "bad")],
        causes="clip_mostly_acts",
        steps="smaller",
    ),
    Rule(
        "learning_rate_too_high",
        "warning",
        "Is my learning rate too high?",
        "effective_sample_size ratio/p1 ratio/p99 on_policy_share surprisal groups/best reward reward_std"
        " weights/change loss_sup lambda_sup learning_rate rewards_std eval/NAME",
        "one of five things. (1) Over 5 steps the effective sample size of off-policy ratios is below 0.5, or below"
        " 0.8 if 1 % of these ratios are above 3 or below 1/3. (2) Within 40 steps the surprisal falls to a tenth of"
        " its start, and the reward has risen by less than half the distance from its start to what the best member of"
        " a group earned then. (3) An update changes the weights by 5% of their size, and the reward lies below that"
        " of the first step by half the spread inside groups, or evaluations have fallen as far (in a supervised"
        " stage: by 10%, and the loss does not fall). (4) Beside a policy term, the supervised loss has doubled and"
        " updates have grown at no higher learning rate, and neither the reward nor an evaluation has risen. (5) The"
        " reward has fallen by 0.5 of the spread inside groups and by four standard errors from its best 20 steps,"
        " which lie among the first 40, and the learning rate is twice what it was then",
        "One batch moves the policy so far that the batch is no longer a sample of it. Such a policy soon becomes"
        " deterministic and repeats the first answers that were rewarded.",
        "Take a tenth of optimiser.learning_rate, set optimiser.warm_up_steps, lower train.max_grad_norm, or take"
        " fewer train.updates_per_batch.",
        "the learning rate is too high",
        [_ratios_spread, _broken_by_a_step, _worse_in_every_term, _falls_with_the_rate, _turns_deterministic],
        causes="generator_drifts ratio_not_one weight_decay_too_high ratio_always_one",
        steps="smaller",
    ),
    Rule(
        "learning_rate_too_low",
        "warning",
        "Is my learning rate too low?",
        "learning_rate surprisal kl updates/taken reward weights/change eval/NAME",
        "the learning rate is 0 for 20 steps (a note if the reward has risen). Or the reward has not risen and the"
        " weights have hardly moved: after 40 steps their changes sum to less than 0.0003 of their size; or after 60"
        " steps to less than 0.01, the surprisal has changed by no more than 2 % and two standard errors, and the KL"
        " is below 0.001. Densities have no surprisal: there the KL alone decides, or, if none is measured, a sum"
        " below 0.002 while no evaluation has risen",
        "Updates are made, but the policy has hardly changed. Steps are too small, the schedule of the learning rate"
        " has already ended, or another term of the loss holds the policy.",
        "Take ten times optimiser.learning_rate, or lower auxiliary.supervised, whose gradient may make up all of"
        " grad_norm. Look also at learning_rate in metrics.jsonl, at train.max_grad_norm beside grad_norm, and at"
        " divergence.beta.",
        "the learning rate is too low",
        [_rate_is_zero, _hardly_moved],
        causes="divergence_holds policy_term_drowned weights_unchanged admission_rejects exploration_too_strong",
        steps="larger",
    ),
    Rule(
        "advantage_turned",
        "fault",
        "Is the sign of my advantages right?",
        "advantages/agreement",
        "over 20 steps the correlation inside groups of the advantages with the rewards that they compare is below"
        " -0.2 by two standard errors",
        "Members that earned more have the lower advantage, so every update makes the worse ones more probable. The"
        " baseline was subtracted the wrong way round, or advantages stand in another order than the rewards.",
        "In the advantage's code, subtract the mean from the reward, not the reward from the mean. To pay for what"
        " should fall, turn the sign of the reward (domain.rewards.NAME.weight = -1).",
        "members that earn more have the lower advantage",
        [
            sees(
                "In the last 20 steps the correlation of rewards and advantages inside groups was {agreement}.",
                lambda s: s.agreement.mean + 2 * s.agreement.error < -0.2,
                agreement=newest("advantages/agreement"),
            ),
        ],
    ),
    Rule(
        "advantage_one_sided",
        "warning",
        "Are my advantages balanced?",
        "advantages_mean advantages_std",
        "over 20 steps the mean of the advantages is more than half their standard deviation away from 0. The rule is"
        " silent with advantage.kind = accepted, which has no baseline",
        "The baseline is not the mean of the group. All members of an easy prompt become more probable and all of a"
        " hard one less, instead of being compared with each other.",
        "Choose a baseline of the group: advantage.kind = z_score, centred or batch_std; with running_std, set"
        " baseline = group. A constant baseline needs rewards that lie around it.",
        "the advantages have one sign",
        [_one_sided],
    ),
    Rule(
        "advantage_scale",
        "warning",
        "Are my advantages of the right size?",
        "advantages_std frac_reward_zero_std loss_kl loss_sup loss_cons loss_l2",
        "over 20 steps the advantages of groups that differ have a spread above 10, or below 0.05 beside another"
        " active term of the loss",
        "The policy term is on another scale than the other terms of the loss. Large advantages drown the other terms,"
        " and small advantages are drowned by them.",
        "Set advantage.kind = z_score or batch_std, advantage.clip or domain.rewards.NAME.weight, or bring"
        " divergence.beta and auxiliary.NAME to the scale of the advantages.",
        "the advantages are on another scale than 1",
        [_scale],
        causes="policy_term_drowned reward_is_noise",
    ),
    Rule(
        "policy_loss_grows",
        "warning",
        "Why does my policy loss stay positive and grow?",
        "loss_pg on_policy_share advantages_std",
        "updates are off-policy, and the loss of the last 20 steps is positive, three times that of the first 20, and"
        " greater by at least a twentieth of the advantages' spread",
        "The later updates of a batch make its good members less probable or its bad members more probable: the steps"
        " overshoot.",
        "Lower optimiser.learning_rate or train.max_grad_norm, narrow trust.low and trust.high, or take fewer"
        " train.updates_per_batch.",
        "the policy loss grows",
        [_loss_grows],
        causes="learning_rate_too_high advantage_scale",
        steps="smaller",
    ),
    Rule(
        "supervised_not_falling",
        "warning",
        "Why does my supervised loss not fall?",
        "loss_sup lambda_sup learning_rate reward eval/NAME",
        "in a supervised stage of 60 steps or more, the last 20 losses are not below the first 20 by two standard"
        " errors; or, beside a policy term, the loss has risen by half (a note if the reward has risen, in training or"
        " in evaluations)",
        "The demonstrations are not being learnt. Steps are too small or too large, targets contradict each other, or"
        " the loss had its final value before the stage began. Beside a policy term, the reward pulls away from the"
        " demonstrations.",
        "Try an optimiser.learning_rate that is ten times higher and one that is ten times lower, a larger"
        " train.demonstrations_per_step, or more num_steps in the supervised stage. If the loss had its final value"
        " from the start, leave the stage out.",
        "the supervised loss does not fall",
        [_supervised],
        causes="learning_rate_too_high not_finite",
    ),
    Rule(
        "consistency_creep",
        "warning",
        "Why does my consistency loss creep up?",
        "loss_cons reward surprisal kl",
        "the consistency loss rises over three successive windows of 20 steps, by a quarter in the last, and the"
        " reward does not rise. The rule is silent if the policy stands still",
        "The outputs drift away from those of the reference and earn no more for it. Features collapse towards"
        " anything that the reward tolerates.",
        "Raise auxiliary.consistency, lower optimiser.learning_rate, set divergence.beta above 0, or take a reference"
        " that follows the policy: reference.kind = ema.",
        "the consistency loss rises",
        [_consistency],
    ),
)
