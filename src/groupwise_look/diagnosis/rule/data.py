"""Prompts and members that teach nothing, and evaluations that are unlike training or use other weights."""

from groupwise_look.diagnosis.rule.base import Seen, first_of, need, newest, newest_of, present, rewards_rise, saw, sees
from groupwise_look.diagnosis.rule.rising import CLOSED, FEW, evaluations_rise, start_gap
from groupwise_look.diagnosis.series import WINDOW, Series
from groupwise_look.diagnosis.stage import Stage


def _never_earn(stage: Stage) -> Seen | None:
    wrong, right = need(stage.ends("groups/all_wrong")), need(stage.ends("groups/all_right"))
    [at_once] = first_of(stage, 5, "groups/all_wrong")
    if wrong[1].mean < 0.25 or any(start.above(wrong[1]) or wrong[1].above(start) for start in (at_once, wrong[0])):
        return None
    learnt = right[1].above(right[0], errors=4.0) and right[1].mean - right[0].mean >= 0.2
    if not learnt or right[1].mean < 0.8 * (1 - wrong[1].mean):
        return None
    return saw("", [*wrong, *right], wrong=wrong, right=right)


def _come_back(stage: Stage) -> Seen | None:
    revisited, epoch, drawn = newest_of(stage, 1, "prompts/revisited", "epoch", "num_prompts_drawn")
    on_purpose = any(stage.setting(f"train.{rule}") for rule in ("adaptive_sampling", "worst_first"))
    if on_purpose or epoch.mean > 2.0 or revisited.mean < 0.5 * drawn.mean:
        return None
    return saw("", [revisited, epoch, drawn], revisited=revisited, epoch=epoch)


def _too_few(stage: Stage) -> Seen | None:
    size, prompts = newest_of(stage, WINDOW, "group_size", "num_prompts_drawn")
    flat = stage.last("frac_reward_zero_std")
    if size.mean * prompts.mean > 4 or rewards_rise(stage):
        return None
    beside = f", and {flat:.0%} of the groups are flat" if flat else ""
    return saw("", [size, prompts, *present(flat)], size=size, prompts=prompts, beside=beside)


_SIDES = ("zero_gradient_fraction/positive", "zero_gradient_fraction/negative")
"""Metrics that exist where better decisions and worse decisions train."""


def _rejects(stage: Stage) -> Seen | None:
    admitted, flat = newest_of(stage, WINDOW, "groups/admitted", "frac_reward_zero_std")
    if flat.mean > 0.5:
        return None
    if admitted.mean > 0.1:
        return _flat_alone(stage, admitted, flat)
    return saw("", [admitted, flat], admitted=admitted, flat=flat)


def _flat_alone(stage: Stage, admitted: Series, flat: Series) -> Seen | None:
    """Returns the evidence that all groups that train are flat: no decision that trains is of a better or worse
    member.
    """
    loss, spread = newest_of(stage, WINDOW, "loss_pg", "advantages_std")
    if any(loss.values) or spread.mean == 0 or any(map(stage.count, _SIDES)):
        return None
    if stage.setting("admission.kind") in (None, "all"):
        return None
    if any(trained > alike for trained, alike in zip(admitted.values, flat.values, strict=True)):
        return None
    return saw("flat_alone", [admitted, flat, loss], admitted=admitted, differing=1 - flat.mean)


def _noisy(stage: Stage) -> Seen | None:
    temperature = stage.last("settings/temperature", FEW)
    # At 1 or less texts are drawn from the policy itself, without noise of the sampler.
    if stage.num_steps < WINDOW or (temperature is not None and temperature.mean <= 1):
        return None
    # Every evaluation is above the first steps, so that one of few members cannot look like noise of the sampler.
    gap = need(start_gap(stage))
    # Where the evaluation has fallen as well, it is the policy or the data that is broken.
    if gap.has_fallen or gap.is_closing(stage) or not gap.is_wide(stage, min(gap.evaluation.values), 0.75):
        return None
    return saw("noisy", gap.evidence, gap=gap)


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
    return saw("hot", [hot], hot=hot, risen=risen)


def _training_unlike(stage: Stage) -> Seen | None:
    gap = need(start_gap(stage))
    if stage.num_steps < WINDOW or gap.is_closing(stage) or not gap.has_fallen:
        return None
    if not gap.is_wide(stage, gap.start, 0.5):
        return None
    name, now = gap.evaluation.metric.removeprefix("eval/"), gap.evaluation.values[-1]
    return saw("", gap.evidence, gap=gap, name=name, now=now)


def _held_out_unlike(stage: Stage) -> Seen | None:
    gap, [last] = need(start_gap(stage, side=-1)), newest_of(stage, FEW, "reward")
    if stage.num_steps < WINDOW or not gap.is_wide(stage, gap.start, 0.25, 0.1):
        return None
    width, now = gap.sampled - gap.start, gap.evaluation.values[-1]
    # Where the training reward has fallen as well, the policy is broken; where the evaluation rises, it follows, unless
    # the reward runs away from it all the same.
    narrowed = now - gap.start > CLOSED * width and last.mean - now < width
    if narrowed or gap.reward.mean - last.mean > 0.5 * width:
        return None
    return saw("", [*gap.evidence, last], gap=gap, last=last, now=now)


def _average_lags(stage: Stage) -> Seen | None:
    decay, (start, last) = stage.setting("train.weight_average.decay"), need(stage.ends("reward", WINDOW // 2))
    if not isinstance(decay, int | float) or stage.setting("train.weight_average.warm_up") is not False:
        return None
    if not last.above(start) or not stage.evaluated_rewards() or evaluations_rise(stage):
        return None
    updates = stage.num_steps
    for name in ("updates_per_batch", "minibatches"):
        count = stage.setting(f"train.{name}")
        updates *= count if isinstance(count, int) else 1
    share = float(decay) ** updates
    if share <= 0.5:
        return None
    return saw("", [start, last], updates=updates, decay=decay, percent=100 * share, start=start, last=last)


def _repeats(stage: Stage) -> Seen | None:
    (start, last), [spread] = need(stage.ends("reward", WINDOW // 2)), first_of(stage, WINDOW // 2, "reward_std")
    again = [seen for seen in stage.evaluated if len(seen) > 1]
    if any(len(set(seen.values)) > 1 for seen in again):
        return None
    if not last.above(start, errors=4.0) or last.mean - start.mean <= 0.5 * spread.mean:
        return None
    # None and all of the prompts, or the limit of the length, may well come again.
    partial = [seen for seen in again if not seen.values[0].is_integer()]
    low = [seen for seen in partial if seen.metric.endswith("/reward") and seen.values[0] < last.mean]
    if len(partial) < 2 or not low:
        return None
    seen = low[0]
    # A rise before the first evaluation cannot show in later ones.
    if seen.steps[-1] <= last.steps[0] or seen.steps[0] > start.steps[-1]:
        return None
    return saw("", [seen, start, last], count=len(seen), seen=seen, start=start, last=last)


LOOKS = {
    "prompts_of_one_value": [
        sees(
            lambda s: s.count.mean >= 20 and s.share.mean >= 0.5,
            share=newest("prompts/one_value", 1),
            count=newest("prompts/revisited", 1),
        )
    ],
    "prompts_never_earn": [_never_earn],
    "prompts_come_back": [_come_back],
    "too_few_members": [_too_few],
    "admission_rejects": [_rejects],
    "exploration_too_strong": [_noisy, _hot],
    "training_unlike_held_out": [_training_unlike],
    "held_out_unlike_training": [_held_out_unlike],
    "average_lags": [_average_lags],
    "evaluation_repeats": [_repeats],
}
