"""A policy that collapses, wanders from its reference, or is held by other terms of the loss."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, first_of, has_grown, need, newest_of, number, rewards_rise
from groupwise.diagnosis.rule.movement import CHANGE, UNMOVED, entropy, first_loss, last_loss, unused
from groupwise.diagnosis.rule.rising import evaluations_stay, rise
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage


def _collapsed(stage: Stage) -> Seen | None:
    for count in (10, 20):
        # The best of a group is luck in part, which no policy repeats: in selection, where it is most of it, sound runs
        # come a third to two thirds of the way.
        ends, missed = entropy(stage, count), unused(stage, count, 0.25)
        if ends and missed and ends[1].mean <= 0.1 * ends[0].mean:
            return Seen(
                f"Entropy fell from {ends[0]} to {ends[1]} nats a decision. The reward is {missed[1]}; at the start the"
                f" best member of a group earned {missed[0]}.",
                [*ends, *missed],
            )
    return None


def _length_creeps(stage: Stage) -> Seen | None:
    (start, last), [reward] = need(stage.ends("completions/mean_length")), newest_of(stage, WINDOW, "reward")
    if not has_grown(start, last) or rewards_rise(stage):
        return None
    return Seen(
        f"Members grew from {start} to {last} decisions, and the reward did not rise with them ({reward} now).",
        [start, last, reward],
    )


def _apart_at_start(stage: Stage) -> Seen | None:
    [kl, share], [reward], [last] = (
        first_of(stage, 1, "kl", "on_policy_share"),
        first_of(stage, 5, "reward"),
        newest_of(stage, 5, "reward"),
    )
    # The reference may be that of an earlier stage: it was measured there, or it is the model without its adapter.
    is_off = stage.setting("domain.model.lora") and stage.setting("reference.adapter") == "off"
    if stage.num_steps < 10 or "kl" in stage.earlier or (stage.earlier and is_off):
        return None
    # Several updates on the first batch have moved the policy before its mean is taken.
    if kl.mean < 0.1 or share.mean < 1 or last.above(reward):
        return None
    return Seen(
        f"Before its first update the policy was {kl} nats a decision from its reference; the reward has not risen"
        f" ({reward} at first, {last} now).",
        [kl, reward, last],
    )


def _below_zero(stage: Stage) -> Seen | None:
    # From the policy that acted, a mean over what it sampled is below 0 wherever the policy has moved.
    # So it is of the estimator k1 where a reference follows the policy and a batch has several updates.
    share = stage.last("on_policy_share", 5)
    off_policy = stage.setting("objective.divergence.kind") == "k1" and share is not None and share.mean < 1
    if stage.setting("objective.divergence.against") == "behaviour" or off_policy:
        return None
    [newest], before = newest_of(stage, 5, "kl"), need(stage.before("kl", 5, 5))
    # No noise of an estimate makes that in every step.
    if max(*newest.values, *before.values) > -0.05 or newest.mean >= before.mean:
        return None
    return Seen(
        f"The divergence from the reference was {before} nats a decision and is {newest}.",
        [before, newest],
    )


def _runs_away(stage: Stage) -> Seen | None:
    count, half = stage.count("kl"), WINDOW // 2
    [start], [last] = first_of(stage, half, "kl"), newest_of(stage, half, "kl")
    before, reward = need(stage.kl_before(half, max(half, count // 3))), need(stage.ends("reward", half))
    grown, earlier, allowed = last.mean - before.mean, max(before.mean - start.mean, 0.0), _allowed(stage)
    # A drift at constant pace grows by half as much in the last third as in the two before; a random walk's square by a
    # little more than they.
    accelerates = last.mean > UNMOVED and grown > 3 * earlier and last.mean > 2 * before.mean and last.above(before)
    if count < 2 * WINDOW or not (accelerates or last.mean > 1.0) or (allowed is not None and last.mean <= allowed):
        return None
    # A rise that is worth what the KL allowed may hide in the noise of the rewards. Where groups have no spread of
    # their own, none is looked for.
    earned = rise(stage, min(2 * WINDOW, stage.count("reward") // 3))
    if reward[1].above(reward[0]) or (earned is not None and not earned.is_none):
        return None
    return Seen(
        f"The divergence from the reference went from {before} to {last} nats a decision in the last third of the"
        f" steps, and the reward has not risen ({reward[0]} at first, {reward[1]} now).",
        [before, last, reward[1]],
    )


def _allowed(stage: Stage) -> float | None:
    """Returns the divergence in nats up to which a coefficient that follows it is content, and below which it falls by
    design: `upper` of a multiplicative coefficient, `target` of an adaptive one.
    """
    for key in ("upper", "target"):
        limit = stage.setting(f"objective.divergence.beta.{key}")
        if isinstance(limit, int | float) and not isinstance(limit, bool):
            return float(limit)
    return None


def _random(stage: Stage) -> Seen | None:
    start, last = need(stage.ends("surprisal", 5))
    if min(start.values) < 0 or last.mean < max(0.5, 2.0 * start.mean) or not last.above(start):
        return None
    if rewards_rise(stage, 5):
        return None
    reward, coefficient = stage.ends("reward", 5) or (), stage.setting("objective.entropy")
    paid = isinstance(coefficient, int | float) and coefficient > 0
    numbers = f" ({reward[0]} at first, {reward[1]} now)" if reward else ""
    return Seen(
        f"The surprisal of what is sampled rose from {start} to {last} nats a decision, and the reward did not"
        f" rise{numbers}.",
        [start, last, *reward],
        means=f"The entropy bonus (entropy = {number(coefficient)}) pays more than the reward does." if paid else "",
        advice="Take a tenth of entropy, or 0." if paid else "",
    )


def _decays(stage: Stage) -> Seen | None:
    decay, [rate] = stage.setting("optimiser.weight_decay"), newest_of(stage, 5, "learning_rate")
    if not isinstance(decay, int | float) or rewards_rise(stage, 5):
        return None
    share = decay * rate.mean
    if share < 1e-3 or share * stage.count(CHANGE) < 0.3:
        return None
    return Seen(
        f"optimiser.weight_decay = {number(decay)} times the learning rate {rate} takes away {number(100 * share)} % of"
        " every weight in each update.",
        [rate],
    )


def _advantages(stage: Stage) -> float | None:
    """Returns the spread of advantages in groups that differ; `None` where hardly any does."""
    spread, flat = newest_of(stage, 10, "advantages_std", "frac_reward_zero_std")
    return None if flat.mean > 0.9 or spread.mean <= 0 else spread.mean / (1 - flat.mean) ** 0.5


def _holds(stage: Stage) -> Seen | None:
    [loss, kl], size = newest_of(stage, 10, "loss_kl", "kl"), need(_advantages(stage))
    if kl.mean <= 0 or stage.num_steps < WINDOW or rewards_rise(stage):
        return None
    beta = loss.mean / kl.mean
    if beta <= 0 or size / beta > 0.1:
        return None
    return Seen(
        f"The divergence has the coefficient {number(beta)}, and the advantages have a spread of {number(size)}: they"
        f" balance when a log-prob has moved by about {number(size / beta)} nats. The reward has not risen.",
        [loss, kl],
    )


def _drowned(stage: Stage) -> Seen | None:
    size = need(_advantages(stage))
    terms = [term for name in ("loss_sup", "loss_cons", "loss_l2") if (term := stage.last(name, 10)) is not None]
    largest = need(max(terms, key=lambda term: term.mean, default=None))
    if stage.num_steps < WINDOW or rewards_rise(stage):
        return None
    if largest.mean >= 20.0 * size:
        return Seen(
            f"{largest.metric} is {largest}, and advantages have a spread of {number(size)}: nearly the whole gradient"
            " comes from that term. The reward has not risen.",
            [largest],
        )
    # A supervised loss that fell to a small part of what it was, beside a reward that stands still and is evaluated no
    # higher: its targets do not earn, and the weights went after them.
    earned, start, last = need(stage.ends("reward")), need(first_loss(stage, 5)), need(last_loss(stage, 10))
    if earned[1].above(earned[0]) or not evaluations_stay(stage) or not 0 < last.mean < 0.25 * start.mean:
        return None
    return Seen(
        f"The supervised loss fell from {start} to {last}, and the reward has not risen ({earned[0]} at first,"
        f" {earned[1]} now): the policy has learnt only that term.",
        [start, last, *earned],
    )


RULES = (
    Rule(
        "entropy_collapse",
        "warning",
        "Why did learning stop half way? Why are all members of a group alike?",
        "entropy surprisal groups/best reward",
        "entropy (or surprisal) has fallen to a tenth of its start, and the reward has risen by less than a quarter of"
        " the distance from its start to what the best member of a group earned then",
        "The members of a group are nearly copies of each other. The policy tries nothing new, and groups become flat"
        " whether their answer is right or wrong.",
        "Lower optimiser.learning_rate, raise trust.high (as method dapo does), set entropy = 0.001 or more or"
        " divergence.beta above 0, or take a larger train.group_size.",
        "the policy has collapsed",
        [_collapsed],
        causes=(
            "learning_rate_too_high judge_falls judge_disagrees reward_dominates weight_decay_too_high"
            " decisions_left_out ratio_always_one"
        ),
        steps="smaller",
    ),
    Rule(
        "length_creep",
        "warning",
        "Why do the answers get longer and longer?",
        "completions/mean_length reward",
        "the mean length of the last 20 steps is at least 1.5 times that of the first 20, and the reward has not risen",
        "If the loss is a mean over each member's decisions, a long wrong answer costs little per token, so length"
        " grows by itself. Length also grows if a reward pays for it by accident.",
        "Set aggregation.kind = token_mean or fixed_length (as methods dapo and dr_grpo do), add a reward of kind"
        " soft_overlong, or look at the rewards of long answers.",
        "answers grow longer",
        [_length_creeps],
        causes="reward_follows_length weight_decay_too_high policy_becomes_random",
    ),
    Rule(
        "reference_elsewhere",
        "warning",
        "Is my reference the model that I began with?",
        "kl on_policy_share reward",
        "before the first update the KL is 0.1 nats a decision or more (it is read at the first step, if all its"
        " updates were on-policy), and after 10 steps the reward has not risen. The rule is silent if an earlier stage"
        " measured a KL, or trained an adapter that the reference lacks",
        "The policy that training begins with is usually its own reference, and its KL is 0 before the first update."
        " This reference is another policy: its weights were not loaded, or it is another model or adapter. The"
        " divergence pulls the policy towards it.",
        "Load the reference from the folder that training begins with, or let it be made from the policy"
        " (reference.kind = frozen). Then compare the log-probs of both on one batch: they are equal at the start.",
        "the reference is another policy than the one that training began with",
        [_apart_at_start],
        causes="ratio_not_one generator_drifts",
    ),
    Rule(
        "divergence_negative",
        "fault",
        "Why is my KL negative?",
        "kl",
        "in each of the last 10 steps the KL is -0.05 nats a decision or less, and it falls. The rule is silent with"
        " divergence.against = behaviour, and for k1 if updates are off-policy",
        "A divergence is never below 0, apart from the noise of its estimate. Its sign is turned, or policy and"
        " reference have changed places. The loss then pays the policy for leaving its reference.",
        "Correct the sign in the divergence's code: it is E[log policy - log reference] under the policy. Or take"
        " divergence.kind = k3, which cannot be negative.",
        "the divergence is negative and pays the policy for leaving its reference",
        [_below_zero],
    ),
    Rule(
        "kl_runaway",
        "warning",
        "Why does my KL explode?",
        "kl reward reward_std completions/mean_length",
        "from step 40 on, the KL is above 1 nat a decision, or it is above 0.001 and grew three times as much in the"
        " last third of the steps as before. If beta adapts, the KL is also above its target or upper bound. And from"
        " the first to the last third of the steps the reward has gained less than 0.15 of the spread inside groups,"
        " even with two standard errors added",
        "The policy moves away from its reference and earns no more for it.",
        "Lower optimiser.learning_rate, raise divergence.beta or set divergence.beta.kind = adaptive, narrow the trust"
        " region, or lower train.max_grad_norm.",
        "the policy runs away from its reference",
        [_runs_away],
        causes="reference_elsewhere learning_rate_too_high weight_decay_too_high policy_becomes_random",
        steps="smaller",
    ),
    Rule(
        "policy_becomes_random",
        "warning",
        "Why does my model write nonsense after some steps?",
        "surprisal reward",
        "the surprisal of the last 5 steps is at least 2 times that of the first 5 and at least 0.5 nats a decision,"
        " and the reward has not risen",
        "The policy samples more and more at random. Something other than the reward moves it: an entropy bonus,"
        " weight decay, or steps that are too large.",
        "Lower entropy, optimiser.weight_decay or optimiser.learning_rate, whichever is unusually high, or set"
        " divergence.beta above 0.",
        "the policy becomes random",
        [_random],
        causes=(
            "reference_elsewhere divergence_negative advantage_turned learning_rate_too_high"
            " weight_decay_too_high generator_drifts ratio_not_one"
        ),
        steps="smaller",
    ),
    Rule(
        "weight_decay_too_high",
        "fault",
        "Does weight decay destroy my model?",
        "learning_rate weights/change reward",
        "the product of optimiser.weight_decay and the learning rate is at least 0.001 an update and at least 0.3 over"
        " all updates so far, and the reward has not risen",
        "In each update, AdamW's decay multiplies every weight by 1 - learning_rate * weight_decay, whatever the"
        " gradient says. The model forgets what it could do.",
        "Set optimiser.weight_decay to 0, or to at most 0.1.",
        "weight decay takes the weights away",
        [_decays],
    ),
    Rule(
        "divergence_holds",
        "warning",
        "Does the divergence hold my policy back?",
        "loss_kl kl advantages_std frac_reward_zero_std reward",
        "from step 20 on, over 10 steps, the spread of the advantages divided by the divergence's coefficient is below"
        " 0.1 nats, and the reward has not risen",
        "A log-prob moves until the divergence pulls it back as strongly as the advantages push it. This quotient is"
        " about how far that is: the policy may not leave its reference.",
        "Take a hundredth of divergence.beta (0.001 to 0.1 is usual), or divergence.kind = none.",
        "the divergence holds the policy",
        [_holds],
    ),
    Rule(
        "policy_term_drowned",
        "warning",
        "Does another term of the loss decide alone?",
        "loss_sup loss_cons loss_l2 lambda_sup advantages_std frac_reward_zero_std reward rewards_std eval/NAME",
        "from step 20 on, over 10 steps, an auxiliary term of the loss is at least 20 times the spread of the"
        " advantages of groups that differ, and the reward has not risen; or the supervised loss, without its"
        " coefficient, has fallen to 0.25 of its value in the first 5 steps, and neither the reward nor an evaluation"
        " has risen",
        "The gradient is that of the auxiliary term, so the reward has hardly any part in what is learnt. If the term"
        " is learnt and earns nothing, its targets may not be what the reward wants.",
        "Look at the targets of the auxiliary term: does a policy that repeats the demonstrations earn anything? Lower"
        " auxiliary.supervised, auxiliary.consistency or train.l2_to_reference until the term is about as large as the"
        " advantages, or raise policy_weight.",
        "another term of the loss drowns the reward",
        [_drowned],
        causes="learning_rate_too_high",
    ),
)
