"""Training prompts that are not those of the evaluation."""

from __future__ import annotations

from groupwise_look.diagnosis.rule.base import Rule, Seen, number
from groupwise_look.diagnosis.rule.rising import CLOSED, FEW, START_GAP_ERRORS, start_gap
from groupwise_look.diagnosis.series import WINDOW
from groupwise_look.diagnosis.stage import Stage

_BELOW = 0.5
_ABOVE = 0.25
_FALLEN = 0.5


def _data_look(stage: Stage) -> Seen | None:
    gap = start_gap(stage)
    if (
        gap is None
        or stage.num_steps < WINDOW
        or gap.is_closing(stage)
        or not gap.has_fallen
        or not gap.is_wide(stage, gap.start, _BELOW)
    ):
        return None
    name, now = gap.evaluation.metric.removeprefix("eval/"), gap.evaluation.values[-1]
    return Seen(
        f"In the first {FEW} steps training prompts earned {number(gap.reward.mean)} on average. In the evaluation"
        f" before, the same policy earned {number(gap.start)} ({name}, {number(now)} now). The training reward has not"
        " risen.",
        gap.evidence,
    )


def _look_below(stage: Stage) -> Seen | None:
    gap, last = start_gap(stage, side=-1), stage.last("reward", FEW)
    if gap is None or last is None or stage.num_steps < WINDOW or not gap.is_wide(stage, gap.start, _ABOVE, 0.1):
        return None
    width, now = gap.sampled - gap.start, gap.evaluation.values[-1]
    # Where the training reward has fallen as well, the policy is broken; where the evaluation rises, it follows, unless
    # the reward runs away from it all the same.
    narrowed = now - gap.start > CLOSED * width and last.mean - now < width
    if narrowed or gap.reward.mean - last.mean > _FALLEN * width:
        return None
    name = gap.evaluation.metric.removeprefix("eval/")
    return Seen(
        f"In the first {FEW} steps training prompts earned {number(gap.reward.mean)} on average. In the evaluation"
        f" before, the same policy earned {number(gap.start)} ({name}). Now training prompts earn {number(last.mean)}"
        f" and evaluated ones {number(now)}.",
        [*gap.evidence, last],
    )


HELD_OUT_UNLIKE_TRAINING = Rule(
    "held_out_unlike_training",
    "warning",
    "Why is the evaluation so much worse than training?",
    ("reward", "reward_std", "rewards_std", "eval/NAME"),
    f"the first evaluation of the reward lies below the mean reward of the first {FEW} steps, minus two standard"
    f" errors, by {_ABOVE} of the spread inside groups, by a tenth of the larger of the two values and by"
    f" {START_GAP_ERRORS:g} standard errors of an evaluation; after {WINDOW} steps the newest evaluation has made up"
    " less"
    f" than {CLOSED:.0%} of that gap, or the gap is as wide as before; and the reward has not fallen by"
    f" {_FALLEN:.0%} of it",
    "The policy earns the training rewards but not those of the evaluation, and did so before its first update."
    " Evaluated prompts have another form (template, system message, a missing mark at the end), or training"
    " prompts hold their own answer, or an earlier stage learnt them by heart. This is also found if evaluated"
    " prompts are meant to be harder.",
    "Print one training prompt and one evaluated prompt as the model reads them (`groupwise sample`, `groupwise"
    " check`), and compare them to the last token. Look for the answer inside the training prompts.",
    _look_below,
    phrase="evaluated prompts are not those that are trained on",
    follows=(
        "learning_rate_too_high",
        "weights_rewritten",
        "generator_drifts",
        "ratio_not_one",
        "average_lags",
    ),
)
TRAINING_UNLIKE_HELD_OUT = Rule(
    "training_unlike_held_out",
    "warning",
    "Are my training data in order?",
    ("reward", "reward_std", "rewards_std", "eval/NAME"),
    f"the first evaluation of the reward exceeds the mean reward of the first {FEW} steps, plus two standard"
    f" errors, by {_BELOW} of the spread inside groups, by a fifth of the larger of the two values and by"
    f" {START_GAP_ERRORS:g} standard errors of an evaluation; after {WINDOW} steps the reward has risen by less than"
    f" {CLOSED:.0%} of that gap; and the evaluation has lost a quarter of its lead",
    "Training prompts pay for something else than evaluated ones do: their answers, targets or examples belong to"
    " other prompts, or another column or form is rewarded. What is learnt from them makes the policy worse at"
    " the task.",
    "Compare some training rows with evaluated ones (`groupwise sample`): does each answer, target or example"
    " belong to its prompt? If training prompts are only harder, nothing is wrong with them: begin with those"
    " that sometimes earn something.",
    _data_look,
    phrase="training prompts pay for something else than evaluated ones",
    follows=(
        "learning_rate_too_high",
        "too_few_members",
        "exploration_too_strong",
        "reward_ignores_answer",
        "reward_constant",
        "reward_missing",
        "samples_alike",
        "all_truncated",
        "policy_term_drowned",
        "not_finite",
        "weight_decay_too_high",
    ),
)


# Prompts that teach nothing, however often they are drawn.

_LEAST = 20
_PROMPTS_SHARE = 0.5


def _prompts_look(stage: Stage) -> Seen | None:
    share, count = stage.last("prompts/one_value", 1), stage.last("prompts/revisited", 1)
    if share is None or count is None or count.mean < _LEAST or share.mean < _PROMPTS_SHARE:
        return None
    return Seen(
        f"{share.mean:.0%} of the {count.mean:.0f} prompts that were drawn three times or more always earned the same"
        " value, whatever was answered.",
        [share, count],
    )


PROMPTS_OF_ONE_VALUE = Rule(
    "prompts_of_one_value",
    "note",
    "Do my prompts teach anything?",
    ("prompts/one_value", "prompts/revisited"),
    f"of the prompts that were drawn three times or more (at least {_LEAST} prompts), at least {_PROMPTS_SHARE:.0%}"
    " gave"
    " all their members the same value each time",
    "These prompts are too easy or too hard for this policy, or their answers in the data are wrong. They cost"
    " time and teach nothing.",
    "Leave them out, or let admission.kind = resample (method dapo) or train.adaptive_sampling pass them over. In"
    " rollouts/, look at those that earn nothing.",
    _prompts_look,
    phrase="many prompts only ever earn one value",
)


# Prompts that are drawn again before the others have been.

_PROMPTS_COME_BACK_EPOCHS = 2.0
_PROMPTS_COME_BACK_SHARE = 0.5
_RULES = ("adaptive_sampling", "worst_first")
"""Settings that draw some prompts more often than others on purpose."""


def _prompts_come_back_look(stage: Stage) -> Seen | None:
    epoch, revisited, drawn = (stage.last(name, 1) for name in ("epoch", "prompts/revisited", "num_prompts_drawn"))
    if epoch is None or revisited is None or drawn is None or any(stage.setting(f"train.{rule}") for rule in _RULES):
        return None
    if epoch.mean > _PROMPTS_COME_BACK_EPOCHS or revisited.mean < _PROMPTS_COME_BACK_SHARE * drawn.mean:
        return None
    return Seen(
        f"{revisited.mean:.0f} prompts were drawn three times or more by epoch {number(epoch.mean)}, and an epoch draws"
        " every prompt once.",
        [revisited, epoch, drawn],
    )


PROMPTS_COME_BACK = Rule(
    "prompts_come_back",
    "warning",
    "Is my whole training set used?",
    ("epoch", "prompts/revisited", "num_prompts_drawn"),
    f"by epoch {_PROMPTS_COME_BACK_EPOCHS:g} at least {_PROMPTS_COME_BACK_SHARE:g} as many prompts as a step draws"
    " were drawn three times or more. The"
    f" rule is silent with {' and '.join(f'train.{rule}' for rule in _RULES)}",
    "An epoch draws every prompt once, so no prompt can come a third time before the third epoch. Something"
    " begins anew: an iterator that is made in every step, or a seed that is set again. The policy is trained on"
    " a few prompts, however many the data set holds, and learns them by heart.",
    "Make the iterator over the prompts once, seed it once, and let it go on between steps. Print the prompts of"
    " two steps side by side. If some prompts should come more often, use train.adaptive_sampling.",
    _prompts_come_back_look,
    phrase="the same prompts are drawn again and again",
    # Later epochs only hide it.
    ended=lambda stage: False,
)


# Prompts of which the policy reads the end alone.

_CUT_PROMPTS_SHARE = 0.2


def _cut_prompts_look(stage: Stage) -> Seen | None:
    cut = stage.last("settings/truncated_prompts", 1)
    if cut is None or cut.mean < _CUT_PROMPTS_SHARE:
        return None
    return Seen(f"{cut.mean:.0%} of the training prompts are too long, and were cut on the left.", [cut])


PROMPTS_TRUNCATED = Rule(
    "prompts_truncated",
    "warning",
    "Does the policy see the whole question?",
    ("settings/truncated_prompts",),
    f"at least {_CUT_PROMPTS_SHARE:.0%} of the training prompts are cut (`domain.overlong = 'truncate'`)",
    "The policy reads only the end of a prompt that is cut. What stood before is lost, usually the instructions.",
    "Raise domain.max_prompt_tokens. If the model's context is too short, lower domain.sampling.max_new_tokens."
    " domain.overlong = 'drop' leaves such prompts out.",
    _cut_prompts_look,
    phrase="prompts are cut",
)


# A reward that rises on the training prompts alone.

_OVERFITTING_EPOCHS = 5.0
_OVERFITTING_RISE = 0.25


def _overfitting_look(stage: Stage) -> Seen | None:
    epoch, ends, spread = stage.last("epoch", 1), stage.ends("reward"), stage.first("reward_std")
    if epoch is None or ends is None or spread is None or epoch.mean < _OVERFITTING_EPOCHS:
        return None
    start, last = ends
    if not last.above(start) or last.mean - start.mean < _OVERFITTING_RISE * spread.mean:
        return None
    for seen in stage.evaluated_rewards():
        if seen.values[-1] <= seen.values[0]:
            return Seen(
                f"The reward rose from {number(start.mean)} to {number(last.mean)} on training prompts that were drawn"
                f" {epoch.mean:.0f} times, while {seen.metric.removeprefix('eval/')} of the evaluations went from"
                f" {number(seen.values[0])} to {number(seen.values[-1])}.",
                [start, last, seen],
            )
    return None


LEARNS_BY_HEART = Rule(
    "learns_by_heart",
    "warning",
    "Why does my reward rise and the evaluation not?",
    ("epoch", "reward", "reward_std", "eval/NAME"),
    f"after {_OVERFITTING_EPOCHS:g} passes over the prompts the reward has risen by more than two standard errors"
    " and by"
    f" {_OVERFITTING_RISE:g} of its first spread inside groups, but the reward of the evaluations is not above its"
    " first value",
    "The policy learns these prompts by heart: what it learns does not carry over to prompts that it has not seen.",
    "Train on more prompts, stop at the step of the best evaluation (`best/`), or set divergence.beta above 0.",
    _overfitting_look,
    phrase="the policy learns its prompts by heart",
    follows=(
        "held_out_unlike_training",
        "average_lags",
        "judge_falls",
        "judge_disagrees",
        "prompts_come_back",
        "evaluation_repeats",
    ),
)


# Evaluations that give the same numbers while the policy learns.

_REPEATED_EVALUATION_RISE = 0.5
_ERRORS = 4.0
_METRICS = 2


def _repeated_evaluation_look(stage: Stage) -> Seen | None:
    ends, spread = stage.ends("reward", WINDOW // 2), stage.first("reward_std", WINDOW // 2)
    again = [seen for seen in stage.evaluated if len(seen) > 1]
    if ends is None or spread is None or any(len(set(seen.values)) > 1 for seen in again):
        return None
    # None and all of the prompts, or the limit of the length, may well come again.
    partial = [seen for seen in again if not seen.values[0].is_integer()]
    start, last = ends
    if not last.above(start, _ERRORS) or last.mean - start.mean <= _REPEATED_EVALUATION_RISE * spread.mean:
        return None
    low = [seen for seen in partial if seen.metric.endswith("/reward") and seen.values[0] < last.mean]
    if len(partial) < _METRICS or not low or low[0].steps[-1] <= last.steps[0]:
        return None
    # What rose before the first evaluation says nothing about later ones.
    if low[0].steps[0] > start.steps[-1]:
        return None
    seen = low[0]
    return Seen(
        f"{len(seen)} evaluations gave the same numbers to the last digit ({number(seen.values[0])} for"
        f" {seen.metric.removeprefix('eval/')}), while the reward rose from {number(start.mean)} to"
        f" {number(last.mean)}.",
        [seen, start, last],
    )


EVALUATION_REPEATS = Rule(
    "evaluation_repeats",
    "fault",
    "Why does the evaluation never change?",
    ("reward", "reward_std", "eval/NAME"),
    "every evaluated metric has had the same value, to the last digit, since the first evaluation, and at least"
    f" {_METRICS} of them are not whole numbers; an evaluation lies in the first {WINDOW // 2} steps or before them,"
    f" and one in the last {WINDOW // 2}; the reward has risen by {_ERRORS:g} standard errors and"
    f" {_REPEATED_EVALUATION_RISE:g} of the"
    " spread inside groups, and lies above an evaluated reward",
    "A policy that earns more writes other answers, also to evaluated prompts. So the evaluation does not use the"
    " policy that is trained: answers or scores come from a cache whose key does not contain the weights, or from"
    " the model that training began with.",
    "Put the step or a hash of the weights into the cache's key, or empty the cache after every update. Give the"
    " evaluation the model that is trained, with its adapter active (`groupwise sample` answers with the weights"
    " as they are).",
    _repeated_evaluation_look,
    phrase="the evaluation repeats itself",
    follows=("average_lags", "weights_unchanged", "weights_rewritten", "generator_drifts", "ratio_not_one"),
)
