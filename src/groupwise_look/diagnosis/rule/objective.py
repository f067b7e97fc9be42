"""A filter that lets hardly any group train."""

from __future__ import annotations

from groupwise_look.diagnosis.rule.base import Rule, Seen, number, rewards_rise
from groupwise_look.diagnosis.series import WINDOW, Series
from groupwise_look.diagnosis.stage import Stage

_ADMITTED = 0.1
_FLAT = 0.5
_SIDES = ("zero_gradient_fraction/positive", "zero_gradient_fraction/negative")
"""Measured where decisions of better and of worse members train."""


def _admission_look(stage: Stage) -> Seen | None:
    admitted, flat = stage.last("groups/admitted"), stage.last("frac_reward_zero_std")
    if admitted is None or flat is None or flat.mean > _FLAT:
        return None
    if admitted.mean > _ADMITTED:
        return _flat_alone(stage, admitted, flat)
    return Seen(
        f"The admission let {admitted.mean:.0%} of the groups of the last {WINDOW} steps train, although only"
        f" {flat.mean:.0%} were flat.",
        [admitted, flat],
    )


def _flat_alone(stage: Stage, admitted: Series, flat: Series) -> Seen | None:
    """Returns what shows that all groups that train are flat: no decision of a better or worse member is among them."""
    loss, spread = stage.last("loss_pg"), stage.last("advantages_std")
    if loss is None or spread is None or any(loss.values) or spread.mean == 0:
        return None
    if stage.setting("admission.kind") in (None, "all") or any(map(stage.count, _SIDES)):
        return None
    if any(trained > alike for trained, alike in zip(admitted.values, flat.values, strict=True)):
        return None
    return Seen(
        f"The admission let {admitted.mean:.0%} of the groups of the last {WINDOW} steps train, all of them flat, and"
        f" threw away the {1 - flat.mean:.0%} in which members differ: the policy's loss is exactly 0.",
        [admitted, flat, loss],
        means="Groups that could teach something are thrown away by the admission, and those that teach nothing are"
        " kept: its condition is turned round.",
    )


ADMISSION_REJECTS = Rule(
    "admission_rejects",
    "fault",
    "Why are nearly all my groups thrown away?",
    ("groups/admitted", "frac_reward_zero_std", "loss_pg", "advantages_std", *_SIDES),
    f"over {WINDOW} steps at most {_ADMITTED:.0%} of the groups are admitted, while at most {_FLAT:.0%} are flat."
    " Or, with an admission other than all, no more groups are admitted than are flat in every step, no decision"
    " of a better or worse member has ever trained, and the policy's loss is exactly 0",
    "The admission throws away groups that could teach something: its threshold does not fit the rewards.",
    "Set admission.kind = all, or informative, which leaves out flat groups alone; or fit the thresholds of"
    " admission to the range of the rewards.",
    _admission_look,
    phrase="the admission throws nearly all groups away",
)


# Advantages that lean to one side, that praise the worse, or that are too small beside the other terms.

_AGAINST = 0.2
_OTHERS = ("loss_kl", "loss_sup", "loss_cons", "loss_l2")


def _one_sided(stage: Stage) -> Seen | None:
    # Ones and zeros: it counts what was accepted, and has no baseline.
    if stage.setting("advantage.kind") == "accepted":
        return None
    mean, spread = stage.last("advantages_mean"), stage.last("advantages_std")
    if mean is None or spread is None or spread.mean <= 0 or abs(mean.mean) <= 0.5 * spread.mean:
        return None
    side = "better" if mean.mean > 0 else "worse"
    sentence = (
        f"In the last {WINDOW} steps advantages had mean {number(mean.mean)} and spread {number(spread.mean)}: most"
        f" count as {side} than the baseline."
    )
    return Seen(sentence, [mean, spread])


def _turned(stage: Stage) -> Seen | None:
    agreement = stage.last("advantages/agreement")
    if agreement is None or agreement.mean + 2 * agreement.error >= -_AGAINST:
        return None
    return Seen(
        f"In the last {WINDOW} steps the correlation of rewards and advantages inside groups was"
        f" {number(agreement.mean)}.",
        [agreement],
    )


def _scale(stage: Stage) -> Seen | None:
    spread, flat = stage.last("advantages_std"), stage.last("frac_reward_zero_std")
    if spread is None or flat is None or flat.mean > 0.9:
        return None
    # Flat groups have advantage 0; the others' spread is what counts.
    size = spread.mean / (1 - flat.mean) ** 0.5
    other_terms = [term for name in _OTHERS if (term := stage.last(name)) is not None and term.mean != 0]
    if size > 10:
        return Seen(f"Advantages of groups that differ have a spread of {number(size)}.", [spread])
    if size < 0.05 and other_terms:
        beside = ", ".join(f"{term.metric} {number(term.mean)}" for term in other_terms)
        return Seen(
            f"Advantages of groups that differ have a spread of {number(size)}, beside other terms of the loss"
            f" ({beside}).",
            [spread, *other_terms],
        )
    return None


ADVANTAGE_ONE_SIDED = Rule(
    "advantage_one_sided",
    "warning",
    "Are my advantages balanced?",
    ("advantages_mean", "advantages_std"),
    f"over {WINDOW} steps the mean of the advantages is more than half their standard deviation away from 0. The rule"
    " is silent with advantage.kind = accepted, which has no baseline",
    "The baseline is not the mean of the group. All members of an easy prompt become more probable and all of a"
    " hard one less, instead of being compared with each other.",
    "Choose a baseline of the group: advantage.kind = z_score, centred or batch_std; with running_std, set"
    " baseline = group. A constant baseline needs rewards that lie around it.",
    _one_sided,
    phrase="the advantages have one sign",
)
ADVANTAGE_TURNED = Rule(
    "advantage_turned",
    "fault",
    "Is the sign of my advantages right?",
    ("advantages/agreement",),
    f"over {WINDOW} steps the correlation inside groups of the advantages with the rewards that they compare is"
    f" below -{_AGAINST} by two standard errors",
    "Members that earned more have the lower advantage, so every update makes the worse ones more probable. The"
    " baseline was subtracted the wrong way round, or advantages stand in another order than the rewards.",
    "In the advantage's code, subtract the mean from the reward, not the reward from the mean. To pay for what"
    " should fall, turn the sign of the reward (domain.rewards.NAME.weight = -1).",
    _turned,
    phrase="members that earn more have the lower advantage",
)
ADVANTAGE_SCALE = Rule(
    "advantage_scale",
    "warning",
    "Are my advantages of the right size?",
    ("advantages_std", "frac_reward_zero_std", *_OTHERS),
    f"over {WINDOW} steps the advantages of groups that differ have a spread above 10, or below 0.05 beside another"
    " active term of the loss",
    "The policy term is on another scale than the other terms of the loss. Large advantages drown the other"
    " terms, and small advantages are drowned by them.",
    "Set advantage.kind = z_score or batch_std, advantage.clip or domain.rewards.NAME.weight, or bring"
    " divergence.beta and auxiliary.NAME to the scale of the advantages.",
    _scale,
    phrase="the advantages are on another scale than 1",
    follows=("policy_term_drowned", "reward_is_noise"),
)


# A clip that never acts, or nearly always.

_MOST = 0.5
"""A region of no width stops all that earlier updates of the batch moved as they should: half by chance, and more."""
_WHOLE = frozenset({"geometric", "arithmetic", "product"})
"""Kinds of ratio that are one number a member."""

_WHOLE_MEANS = (
    "These bounds are narrower than one update, so the later updates of a batch act only on members that the first one"
    " moved the wrong way. The policy learns mostly from the first update of each batch."
)
_WHOLE_ADVICE = (
    "You need not do anything. train.updates_per_batch = 1 gives nearly the same in less time. To learn more from each"
    " batch, lower optimiser.learning_rate, or widen trust.low and trust.high (GSPO's bounds are made for answers of"
    " hundreds of tokens)."
)


def _off_policy(stage: Stage) -> tuple[Series, float] | None:
    """Returns the share of clipped decisions, and the share of updates in which the ratio could differ from one."""
    clipped, share = stage.last("clip_ratio/region_mean"), stage.last("on_policy_share")
    return None if clipped is None or share is None or share.mean > 0.9 else (clipped, 1 - share.mean)


def _never(stage: Stage) -> Seen | None:
    off_policy = _off_policy(stage)
    if off_policy is None or max(off_policy[0].values) > 0:
        return None
    spread = [quantile for name in ("ratio/p1", "ratio/p99") if (quantile := stage.last(name)) is not None]
    sentence = (
        f"In the last {WINDOW} steps the clip touched no decision, although {off_policy[1]:.0%} of the updates were"
        " off-policy"
    )
    return Seen(
        sentence
        + (
            f" (1 % and 99 % of the ratios: {', '.join(number(quantile.mean) for quantile in spread)})."
            if spread
            else "."
        ),
        [off_policy[0], *spread],
    )


def _mostly(stage: Stage) -> Seen | None:
    off_policy = _off_policy(stage)
    # The first update on a batch has ratio one, and no clip acts on it.
    if off_policy is None or (share := min(1.0, off_policy[0].mean / off_policy[1])) <= _MOST:
        return None
    sentence = f"In the last {WINDOW} steps {share:.0%} of the decisions of off-policy updates were beyond the clip"
    kind = stage.setting("ratio.kind")
    if kind not in _WHOLE or off_policy[0].mean > _MOST:
        return Seen(f"{sentence}, and {off_policy[0].mean:.0%} of all decisions.", [off_policy[0]])
    return Seen(
        f"{sentence}, and {off_policy[0].mean:.0%} of all decisions: ratio.kind = {kind} bounds a member as a whole.",
        [off_policy[0]],
        "note",
        _WHOLE_MEANS,
        _WHOLE_ADVICE,
    )


CLIP_NEVER_ACTS = Rule(
    "clip_never_acts",
    "note",
    "Does the clip do anything?",
    ("clip_ratio/region_mean", "on_policy_share", "ratio/p1", "ratio/p99"),
    f"no decision was clipped in {WINDOW} steps, although more than a tenth of the updates were off-policy",
    "The policy moves less within a batch than the bounds allow, so the trust region has no effect on this run.",
    "You need not do anything. If learning is slow, raise optimiser.learning_rate or train.updates_per_batch. For"
    " a region that acts, narrow trust.low and trust.high.",
    _never,
    phrase="the bounds never act",
    follows=("learning_rate_too_low", "weights_unchanged", "ratio_always_one"),
    steps="larger",
)
CLIP_MOSTLY_ACTS = Rule(
    "clip_mostly_acts",
    "warning",
    "Why is nearly everything clipped?",
    ("clip_ratio/region_mean", "on_policy_share"),
    f"over {WINDOW} steps more than {_MOST:.0%} of the decisions of off-policy updates are clipped. This is only"
    f" a note if a member has one ratio as a whole and at most {_MOST:.0%} of the decisions of all updates are clipped",
    "Most decisions give no gradient: the step is too large for the bounds, or the bounds do not fit the"
    " scale of the log-prob, as with decisions of many dimensions.",
    "Lower optimiser.learning_rate or train.updates_per_batch, widen trust.low and trust.high, or set another"
    " domain.reduce for many-dimensional decisions.",
    _mostly,
    phrase="nearly everything is clipped",
    follows=("learning_rate_too_high", "ratio_not_one"),
    steps="smaller",
)


# Log-probs that differ from those recorded while sampling before any update was made, or do not after one.

_RATIO_FEW = 3
_WIDTH = 0.2
_OFF_POLICY = 0.9
_EQUAL = 0.99
_MOVED = 1e-5
_RATIO_SURE = 1e-3
"""Nats of surprisal below which log-probs may be exactly 0 before an update and after it."""
_RATIO_ROUNDING = 1e-6
"""Nats by which fp32 rounds a log-prob of up to ten nats, whose unit in the last place is 9.5e-7. No two passes agree
better, whatever the width of the trust region.
"""


def _width(stage: Stage) -> float:
    bounds = [
        bound
        for side in ("low", "high")
        if isinstance(bound := stage.setting(f"trust.{side}"), int | float) and bound > 0
    ]
    return min(bounds, default=_WIDTH)


def _ratio_look(stage: Stage) -> Seen | None:
    gap, width = stage.last("sampling/rescoring_difference/mean", _RATIO_FEW), _width(stage)
    if gap is not None and gap.mean > max(0.1 * width, _RATIO_ROUNDING):
        sentence = (
            f"Scored again before its first update, the policy is {number(gap.mean)} nats a decision away from what was"
            " recorded while it sampled"
        )
        return Seen(f"{sentence}; the trust region is {number(width)} wide.", [gap])
    share, low, high = (stage.last(name, _RATIO_FEW) for name in ("on_policy_share", "ratio/p1", "ratio/p99"))
    if share and low and high and share.mean == 1 and (high.mean > 1.05 or low.mean < 0.95):
        sentence = (
            f"With one update a batch every ratio should be 1, but 1 % of them are below {number(low.mean)} and 1 %"
            f" above {number(high.mean)}."
        )
        return Seen(sentence, [low, high])
    return None


def _always(stage: Stage) -> Seen | None:
    names = ("on_policy_share", "on_policy_fraction", "weights/change")
    share, equal, change = (stage.last(name, _RATIO_FEW) for name in names)
    if share is None or equal is None or change is None:
        return None
    surprisal = stage.last("surprisal", _RATIO_FEW)
    if surprisal is not None and surprisal.mean < _RATIO_SURE:
        return None
    if max(share.values) > _OFF_POLICY or min(equal.values) < _EQUAL or min(change.values) < _MOVED:
        return None
    return Seen(
        f"{1 - share.mean:.0%} of the updates were made after another on the same batch had changed the weights by"
        f" {number(change.mean)} of their size, and {equal.mean:.0%} of the log-ratios are exactly 0.",
        [share, equal, change],
    )


RATIO_NOT_ONE = Rule(
    "ratio_not_one",
    "fault",
    "Why is the ratio not 1 at the first update?",
    ("sampling/rescoring_difference/mean", "on_policy_share", "ratio/p1", "ratio/p99"),
    f"over {_RATIO_FEW} steps the log-probs of the first update differ from the recorded ones by more than fp32"
    " rounding"
    f" ({_RATIO_ROUNDING:g}) and by more than a tenth of the trust region's width (0.2 if it has none); or, with one"
    " update a batch, 1 % of the ratios are below 0.95, or 1 % above 1.05",
    "The sampler and the trainer do not have the same policy. The causes are dropout while training, another"
    " temperature or template, stale weights in a server, or lower precision. Every ratio is wrong by this"
    " difference, so the clip acts on the wrong decisions.",
    "Set dropout to 0, score at the sampling temperature, send the sampler the newest weights, or set"
    " train.autocast = none. Or correct for the difference: method=NAME+tis.",
    _ratio_look,
    phrase="the first update is not on the policy that sampled",
    follows=("generator_drifts",),
)
RATIO_ALWAYS_ONE = Rule(
    "ratio_always_one",
    "fault",
    "Why is the ratio 1 in every update?",
    ("on_policy_share", "on_policy_fraction", "weights/change", "surprisal"),
    f"in each of the last {_RATIO_FEW} steps at most {_OFF_POLICY:.0%} of the updates were the first on their batch,"
    " at least"
    f" {_EQUAL:.0%} of the log-ratios were exactly 0, and updates changed the weights by {_MOVED:g} of their size"
    f" (silent at a surprisal below {_RATIO_SURE:g} nats a decision, where a sure policy's log-probs stay exactly 0)",
    "The ratio compares the policy with itself: the old log-probs are not those of the time of sampling, but are"
    " computed anew in every update. So no trust region acts, and nothing bounds how far later updates of a batch"
    " move the policy.",
    "Compute the log-probs of the samples once, before the first update on them, and compare every update with"
    " these. Or set train.updates_per_batch = 1 and train.minibatches = 1.",
    _always,
    phrase="the ratio compares the policy with itself",
    # What later updates do without a bound may have ended them: a stage of flat groups has none.
    ended=lambda stage: False,
)


# Steps that see too few members to tell a better answer from luck.

_MEMBERS = 4


def _batch_look(stage: Stage) -> Seen | None:
    size, prompts, flat = (stage.last(name) for name in ("group_size", "num_prompts_drawn", "frac_reward_zero_std"))
    if size is None or prompts is None or size.mean * prompts.mean > _MEMBERS or rewards_rise(stage):
        return None
    sentence = f"A step compares {size.mean:.0f} members of {prompts.mean:.0f} prompts"
    beside = f", and {flat.mean:.0%} of the groups are flat" if flat is not None else ""
    return Seen(f"{sentence}{beside}; the reward has not risen.", [size, prompts, *([flat] if flat else [])])


TOO_FEW_MEMBERS = Rule(
    "too_few_members",
    "warning",
    "Are my batches large enough?",
    ("group_size", "num_prompts_drawn", "frac_reward_zero_std", "reward"),
    f"over {WINDOW} steps at most {_MEMBERS} members a step are compared, and the reward has not risen",
    "A step moves the policy by the luck of a few members: most groups are flat, and the rest is noise.",
    "Raise train.prompts_per_step and train.group_size, to at least 8 members of 8 prompts. If memory is short,"
    " train.micro_batch_members bounds what is computed at once.",
    _batch_look,
    phrase="steps see too few members",
)


# A reward that differs between prompts or steps and never between the members of a group.

_IGNORED_FEW = 10
_IGNORED_ROUNDING = 1e-6


def _ignored_look(stage: Stage) -> Seen | None:
    flat, reward, spread = (
        stage.first(name, _IGNORED_FEW) for name in ("frac_reward_zero_std", "reward", "groups/mean_std")
    )
    last_flat = stage.last("frac_reward_zero_std", _IGNORED_FEW)
    if flat is None or reward is None or last_flat is None or min(*flat.values, *last_flat.values) < 0.99:
        return None
    size = max(map(abs, reward.values)) * _IGNORED_ROUNDING
    between_steps = max(reward.values) - min(reward.values)
    if max(between_steps, spread.mean if spread else 0.0) <= size or _at_the_bounds(stage) > 0.5:
        return None
    distinct = stage.first("completions/distinct", _IGNORED_FEW)
    surprisal = stage.first("surprisal", _IGNORED_FEW)
    if distinct is not None and distinct.mean < 0.5 and (surprisal is None or surprisal.mean < 0.1):
        return None
    seen = f", although {distinct.mean:.0%} of the members are distinct" if distinct is not None else ""
    sentence = (
        f"From the first step on all members of every group earned the same{seen}, and rewards differ between prompts"
        f" or steps ({number(min(reward.values))} to {number(max(reward.values))} in the mean)."
    )
    evidence: list[Series] = [flat, reward, *(series for series in (spread, distinct) if series is not None)]
    return Seen(sentence, evidence)


def _at_the_bounds(stage: Stage) -> float:
    """Returns the share of groups that earned all or nothing, as too easy and too hard prompts do."""
    shares = [stage.first(name, _IGNORED_FEW) for name in ("groups/all_right", "groups/all_wrong")]
    return sum(share.mean for share in shares if share is not None)


REWARD_IGNORES_ANSWER = Rule(
    "reward_ignores_answer",
    "fault",
    "Does my reward look at the answer at all?",
    (
        "frac_reward_zero_std",
        "reward",
        "groups/mean_std",
        "groups/all_right",
        "groups/all_wrong",
        "completions/distinct",
        "surprisal",
    ),
    f"in the first and in the last {_IGNORED_FEW} steps all groups are flat, but rewards differ between prompts or"
    " steps,"
    " members differ, and less than half of the groups earn everything or nothing",
    "The reward depends on the prompt or the batch, not on what the member did. Its function reads a column of"
    " the data in place of the completion, or gives all members one number.",
    "Print what the function is given and what it returns for the members of one group (`groupwise check`). Let"
    " it read the completion, and return one number for each.",
    _ignored_look,
    phrase="the reward does not depend on what a member did",
    follows=("samples_alike",),
)


# Decisions of one sign of advantage that give no gradient.


def _dead(stage: Stage, sign: str, kind: str, opposite_sign: str) -> Seen | None:
    share, opposite_share = (
        stage.last(f"zero_gradient_fraction/{sign}"),
        stage.last(f"zero_gradient_fraction/{opposite_sign}"),
    )
    if share is None or share.mean <= 0.5:
        return None
    sentence = f"{share.mean:.0%} of the decisions of {kind} members gave no gradient in the last {WINDOW} steps"
    beside = (
        f" ({opposite_share.mean:.0%} of the {'good' if sign == 'negative' else 'bad'} ones)" if opposite_share else ""
    )
    return Seen(f"{sentence}{beside}.", [share, *([opposite_share] if opposite_share else [])])


def _negatives(stage: Stage) -> Seen | None:
    return _dead(stage, "negative", "bad", "positive")


def _positives(stage: Stage) -> Seen | None:
    return _dead(stage, "positive", "good", "negative")


_ADVICE = (
    "Lower optimiser.learning_rate or train.updates_per_batch, widen the trust region on that side, or choose"
    " a region that keeps a gradient (method cispo, sapo)."
)
DEAD_NEGATIVES = Rule(
    "dead_negatives",
    "warning",
    "Why does the policy not unlearn its mistakes?",
    ("zero_gradient_fraction/negative",),
    f"more than half of the decisions with a negative advantage have no gradient over {WINDOW} steps",
    "The policy learns from good members only, since most decisions of bad members have no gradient. A weight"
    " that multiplies the ratio before the clip does this from the first update on.",
    _ADVICE,
    _negatives,
    phrase="bad answers give no gradient",
    follows=("clip_mostly_acts",),
    steps="smaller",
)
DEAD_POSITIVES = Rule(
    "dead_positives",
    "warning",
    "Why does the policy not learn from its successes?",
    ("zero_gradient_fraction/positive",),
    f"more than half of the decisions with a positive advantage have no gradient over {WINDOW} steps",
    "Good members reach the upper bound early in their batch, so its other updates only make bad members less"
    " probable.",
    _ADVICE,
    _positives,
    phrase="good answers give no gradient",
    follows=("clip_mostly_acts",),
    steps="smaller",
)


# Rewards that give every member the same value, and members that are all alike, from the first step on.

_CONSTANT_FEW = 5
_CONSTANT_ROUNDING = 1e-9
_CONSTANT_SURE = 0.01
"""Nats a decision; a policy below it draws the same decision 99 times of a hundred."""
_DISTINCT = 1.5
"""Different members of a group."""


def _constant(stage: Stage) -> Seen | None:
    names = stage.rewards(weighted=True)
    constants = {name: means for name in names if (means := _only_value(stage, name)) is not None}
    if not constants:
        return None
    said = " and ".join(f"{name} has given every member {number(means[0].mean)}" for name, means in constants.items())
    sentence = f"Reward {said} since the stage began."
    evidence = [series for means in constants.values() for series in means]
    if len(constants) == len(names):
        return Seen(sentence, evidence)
    return Seen(sentence, evidence, "note", "This reward compares nothing: the other rewards decide.")


def _only_value(stage: Stage, name: str) -> tuple[Series, Series] | None:
    """Returns the first and the newest means of a reward where no member ever earned another value."""
    means = stage.first(f"rewards/{name}/mean"), stage.last(f"rewards/{name}/mean")
    spreads = stage.first(f"rewards/{name}/std"), stage.last(f"rewards/{name}/std")
    if means[0] is None or means[1] is None or spreads[0] is None or spreads[1] is None:
        return None
    values = [*means[0].values, *means[1].values]
    near = _CONSTANT_ROUNDING * max(1.0, max(map(abs, values)))
    is_constant = max(values) - min(values) <= near and max(*spreads[0].values, *spreads[1].values) <= near
    return (means[0], means[1]) if is_constant else None


REWARD_CONSTANT = Rule(
    "reward_constant",
    "fault",
    "Why does every member earn the same?",
    ("rewards/NAME/mean", "rewards/NAME/std"),
    f"in the first {WINDOW} and in the last {WINDOW} steps of a stage, a reward gave every member the same value."
    " This is only a note if another weighted reward varies",
    "A reward that never varies compares nothing. Either its function reads the wrong column or looks for a form"
    " that no answer has, or every prompt is too hard or too easy for this policy.",
    "Run `groupwise check`: it scores one group and shows what the function is given and what it returns. Then"
    " mend the function, its columns, the form that the prompt asks for, or the prompts.",
    _constant,
    phrase="every member earns the same reward",
    follows=("prompts_truncated", "reward_missing", "all_truncated", "samples_alike", "weight_decay_too_high"),
)


def _alike(stage: Stage) -> Seen | None:
    surprisal, flat = stage.first("surprisal", _CONSTANT_FEW), stage.first("frac_reward_zero_std", _CONSTANT_FEW)
    if flat is None or flat.mean < 0.9:
        return None
    distinct, size = stage.first("completions/distinct", _CONSTANT_FEW), stage.first("group_size", _CONSTANT_FEW)
    if distinct is not None and size is not None and size.mean > 1 and distinct.mean * size.mean <= _DISTINCT:
        return Seen(
            f"In the first {_CONSTANT_FEW} steps only {number(distinct.mean * size.mean)} of the {size.mean:.0f}"
            " members of a"
            f" group were different on average, and {flat.mean:.0%} of the groups were flat.",
            [distinct, flat],
        )
    if surprisal is None or min(surprisal.values) < 0 or surprisal.mean > _CONSTANT_SURE:
        return None
    sentence = (
        f"In its first {_CONSTANT_FEW} steps the stage's policy was sure of everything it did"
        f" ({number(surprisal.mean)} nats a"
        f" decision), and {flat.mean:.0%} of the groups were flat."
    )
    return Seen(sentence, [surprisal, flat])


SAMPLES_ALIKE = Rule(
    "samples_alike",
    "warning",
    "Why are the members of a group copies of each other from the start?",
    ("surprisal", "frac_reward_zero_std", "completions/distinct", "group_size"),
    f"over the first {_CONSTANT_FEW} steps at least 90 % of the groups are flat, and either a group has at most"
    f" {_DISTINCT}"
    f" different members on average or the surprisal is below {_CONSTANT_SURE} nats a decision",
    "Copies earn the same, so no group compares anything. Sampling is close to greedy, or the policy that the"
    " stage began with is sure of one answer.",
    "Sample more randomly: domain.sampling.temperature = 1, top_p = 1 and top_k = 0 for texts, a larger"
    " domain.policy.sigma or sampler.noise for images. Or begin with an earlier model, for example after a"
    " shorter supervised stage.",
    _alike,
    phrase="members are copies of each other from the start",
)
