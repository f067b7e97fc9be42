"""Prompts and members that teach nothing: what is drawn, how much of it, and how it is sampled."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, first_of, need, newest, newest_of, present, rewards_rise, sees
from groupwise.diagnosis.rule.rising import FEW, start_gap
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.stage import Stage


def _never_earn(stage: Stage) -> Seen | None:
    wrong, right = need(stage.ends("groups/all_wrong")), need(stage.ends("groups/all_right"))
    [at_once] = first_of(stage, 5, "groups/all_wrong")
    if wrong[1].mean < 0.25 or any(start.above(wrong[1]) or wrong[1].above(start) for start in (at_once, wrong[0])):
        return None
    learnt = right[1].above(right[0], errors=4.0) and right[1].mean - right[0].mean >= 0.2
    if not learnt or right[1].mean < 0.8 * (1 - wrong[1].mean):
        return None
    return Seen(
        f"In {wrong[0]:.0%} of the groups of the first {WINDOW} steps nobody earned anything, and in {wrong[1]:.0%} of"
        f" the last {WINDOW}, although those in which all members are right have grown from {right[0]:.0%} to"
        f" {right[1]:.0%}.",
        [*wrong, *right],
    )


def _come_back(stage: Stage) -> Seen | None:
    revisited, epoch, drawn = newest_of(stage, 1, "prompts/revisited", "epoch", "num_prompts_drawn")
    on_purpose = any(stage.setting(f"train.{rule}") for rule in ("adaptive_sampling", "worst_first"))
    if on_purpose or epoch.mean > 2.0 or revisited.mean < 0.5 * drawn.mean:
        return None
    return Seen(
        f"{revisited:.0f} prompts were drawn three times or more by epoch {epoch}, and an epoch draws every prompt"
        " once.",
        [revisited, epoch, drawn],
    )


def _too_few(stage: Stage) -> Seen | None:
    size, prompts = newest_of(stage, WINDOW, "group_size", "num_prompts_drawn")
    flat = stage.last("frac_reward_zero_std")
    if size.mean * prompts.mean > 4 or rewards_rise(stage):
        return None
    beside = f", and {flat:.0%} of the groups are flat" if flat else ""
    return Seen(
        f"A step compares {size:.0f} members of {prompts:.0f} prompts{beside}; the reward has not risen.",
        [size, prompts, *present(flat)],
    )


_SIDES = ("zero_gradient_fraction/positive", "zero_gradient_fraction/negative")
"""Measured where decisions of better and of worse members train."""


def _rejects(stage: Stage) -> Seen | None:
    admitted, flat = newest_of(stage, WINDOW, "groups/admitted", "frac_reward_zero_std")
    if flat.mean > 0.5:
        return None
    if admitted.mean > 0.1:
        return _flat_alone(stage, admitted, flat)
    return Seen(
        f"The admission let {admitted:.0%} of the groups of the last {WINDOW} steps train, although only {flat:.0%}"
        " were flat.",
        [admitted, flat],
    )


def _flat_alone(stage: Stage, admitted: Series, flat: Series) -> Seen | None:
    """Returns what shows that all groups that train are flat: no decision of a better or worse member is among them."""
    loss, spread = newest_of(stage, WINDOW, "loss_pg", "advantages_std")
    if any(loss.values) or spread.mean == 0 or any(map(stage.count, _SIDES)):
        return None
    if stage.setting("objective.admission.kind") in (None, "all"):
        return None
    if any(trained > alike for trained, alike in zip(admitted.values, flat.values, strict=True)):
        return None
    return Seen(
        f"The admission let {admitted:.0%} of the groups of the last {WINDOW} steps train, all of them flat, and threw"
        f" away the {1 - flat.mean:.0%} in which members differ: the policy's loss is exactly 0.",
        [admitted, flat, loss],
        means="Groups that could teach something are thrown away by the admission, and those that teach nothing are"
        " kept: its condition is turned round.",
    )


def _noisy(stage: Stage) -> Seen | None:
    temperature = stage.last("settings/temperature", FEW)
    # At 1 or less texts are drawn from the policy itself, without noise of the sampler.
    if stage.num_steps < WINDOW or (temperature is not None and temperature.mean <= 1):
        return None
    # Every evaluation lies above the first steps, so that one of few members cannot look like noise of the sampler.
    gap = need(start_gap(stage))
    # Where the evaluation has fallen as well, it is the policy or the data that is broken.
    if gap.has_fallen or gap.is_closing(stage) or not gap.is_wide(stage, min(gap.evaluation.values), 0.75):
        return None
    return Seen(
        f"Members of the first {FEW} steps earned {gap.reward} on average. In the evaluation before, the same policy"
        f" earned {gap.start:.3g} ({gap.evaluation.metric.removeprefix('eval/')}). The reward has not risen.",
        gap.evidence,
    )


def _hot(stage: Stage) -> Seen | None:
    [hot] = newest_of(stage, FEW, "settings/temperature")
    if stage.num_steps < WINDOW or hot.mean < 3.0:
        return None
    # Members may earn less than an evaluation did before the first step, however they have risen.
    last = stage.last("reward", FEW)
    starts = [seen.values[0] for seen in stage.evaluated if seen.metric.endswith("/reward")]
    is_below = last is not None and any(last.mean + 2 * last.error < start for start in starts)
    if not is_below and rewards_rise(stage):
        return None
    risen = " to what an evaluation earned before" if is_below else ""
    return Seen(f"Members are sampled at temperature {hot}, and the reward has not risen{risen}.", [hot])


RULES = (
    Rule(
        "prompts_of_one_value",
        "note",
        "Do my prompts teach anything?",
        "prompts/one_value prompts/revisited",
        "of the prompts that were drawn three times or more (at least 20 prompts), at least 50% gave all their members"
        " the same value each time",
        "These prompts are too easy or too hard for this policy, or their answers in the data are wrong. They cost"
        " time and teach nothing.",
        "Leave them out, or let admission.kind = resample (method dapo) or train.adaptive_sampling pass them over. In"
        " rollouts/, look at those that earn nothing.",
        "many prompts only ever earn one value",
        [
            sees(
                "{share:.0%} of the {count:.0f} prompts that were drawn three times or more always earned the same"
                " value, whatever was answered.",
                lambda s: s.count.mean >= 20 and s.share.mean >= 0.5,
                share=newest("prompts/one_value", 1),
                count=newest("prompts/revisited", 1),
            ),
        ],
    ),
    Rule(
        "prompts_never_earn",
        "warning",
        "Why does my reward stop half way?",
        "groups/all_wrong groups/all_right",
        "at least 25% of the groups of the last 20 steps earn nothing, and this share is within two standard errors of"
        " that of the first 5 and of the first 20 steps; the share of groups in which all are right has grown by 20%"
        " and by 4 standard errors, and these are 80% of all groups that earn something",
        "The policy has learnt what it could, but not from these prompts. Their answers in the data are wrong, or have"
        " another form than the reward compares with (a unit, another spelling), or they are out of this policy's"
        " reach.",
        "In rollouts/, look at groups that earn nothing: would you accept what they say? Then bring the answers of the"
        " data into one form, or let the reward forgive the difference (domain.rewards.NAME). Otherwise take easier"
        " prompts.",
        "a part of the prompts never earns anything",
        [_never_earn],
        causes=(
            "learning_rate_too_high ratio_always_one ratio_not_one generator_drifts weights_rewritten"
            " samples_alike entropy_collapse all_truncated limit_teaches_brevity prompts_truncated"
            " judge_disagrees judge_falls reward_is_noise reward_follows_place reward_ignores_answer"
        ),
    ),
    Rule(
        "prompts_come_back",
        "warning",
        "Is my whole training set used?",
        "epoch prompts/revisited num_prompts_drawn",
        "by epoch 2 at least 0.5 as many prompts as a step draws were drawn three times or more. The rule is silent"
        " with train.adaptive_sampling and train.worst_first",
        "An epoch draws every prompt once, so no prompt can come a third time before the third epoch. Something begins"
        " anew: an iterator that is made in every step, or a seed that is set again. The policy is trained on a few"
        " prompts, however many the data set holds, and learns them by heart.",
        "Make the iterator over the prompts once, seed it once, and let it go on between steps. Print the prompts of"
        " two steps side by side. If some prompts should come more often, use train.adaptive_sampling.",
        "the same prompts are drawn again and again",
        [
            _come_back,
        ],
        ended=lambda stage: False,  # Later epochs only hide it.
    ),
    Rule(
        "too_few_members",
        "warning",
        "Are my batches large enough?",
        "group_size num_prompts_drawn frac_reward_zero_std reward",
        "over 20 steps at most 4 members a step are compared, and the reward has not risen",
        "A step moves the policy by the luck of a few members: most groups are flat, and the rest is noise.",
        "Raise train.prompts_per_step and train.group_size, to at least 8 members of 8 prompts. If memory is short,"
        " train.micro_batch_members bounds what is computed at once.",
        "steps see too few members",
        [_too_few],
    ),
    Rule(
        "admission_rejects",
        "fault",
        "Why are nearly all my groups thrown away?",
        "groups/admitted frac_reward_zero_std loss_pg advantages_std zero_gradient_fraction/positive"
        " zero_gradient_fraction/negative",
        "over 20 steps at most 10% of the groups are admitted, while at most 50% are flat. Or, with an admission other"
        " than all, no more groups are admitted than are flat in every step, no decision of a better or worse member"
        " has ever trained, and the policy's loss is exactly 0",
        "The admission throws away groups that could teach something: its threshold does not fit the rewards.",
        "Set admission.kind = all, or informative, which leaves out flat groups alone; or fit the thresholds of"
        " admission to the range of the rewards.",
        "the admission throws nearly all groups away",
        [_rejects],
    ),
    Rule(
        "exploration_too_strong",
        "warning",
        "Is my sampling too random?",
        "reward reward_std rewards_std eval/NAME settings/temperature",
        "either of two things. Every evaluation of the reward exceeds the mean reward of the first 5 steps, plus two"
        " standard errors, by 0.75 of the spread inside groups, by a fifth of the larger of the two values and by 3"
        " standard errors of an evaluation; it has not fallen; and after 20 steps the reward has risen by less than"
        " 10% of that gap (of texts, only at a temperature above 1). Or the temperature is 3 or more, and the reward"
        " has not risen or lies below the first evaluation",
        "Members are drawn so far from what the policy would do that their rewards hardly depend on the policy: groups"
        " compare noise. This is also found if evaluated prompts are far easier than trained ones.",
        "Lower domain.sampling.temperature (domain.temperature of a selector) to about 1, or lower domain.policy.sigma"
        " or the sampler's noise, until members earn nearly what the evaluation does.",
        "sampling is too random",
        [_noisy, _hot],
        causes="reward_ignores_answer reward_constant reward_missing samples_alike all_truncated",
    ),
)
