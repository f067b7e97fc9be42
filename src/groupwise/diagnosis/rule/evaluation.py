"""Evaluations that are unlike training, repeat themselves or use other weights."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, first_of, need, newest_of
from groupwise.diagnosis.rule.rising import CLOSED, FEW, evaluations_rise, start_gap
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage


def _training_unlike(stage: Stage) -> Seen | None:
    gap = need(start_gap(stage))
    if stage.num_steps < WINDOW or gap.is_closing(stage) or not gap.has_fallen:
        return None
    if not gap.is_wide(stage, gap.start, 0.5):
        return None
    name, now = gap.evaluation.metric.removeprefix("eval/"), gap.evaluation.values[-1]
    return Seen(
        f"In the first {FEW} steps training prompts earned {gap.reward} on average. In the evaluation before, the same"
        f" policy earned {gap.start:.3g} ({name}, {now:.3g} now). The training reward has not risen.",
        gap.evidence,
    )


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
    return Seen(
        f"In the first {FEW} steps training prompts earned {gap.reward} on average. In the evaluation before, the same"
        f" policy earned {gap.start:.3g} ({gap.evaluation.metric.removeprefix('eval/')}). Now training prompts earn"
        f" {last} and evaluated ones {now:.3g}.",
        [*gap.evidence, last],
    )


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
    return Seen(
        f"After {updates} updates the average of the weights (train.weight_average.decay = {float(decay):.3g}) is still"
        f" made up to {100 * share:.3g} % of the weights that the stage began with. The reward rose from {start} to"
        f" {last}; the evaluations, which use the average, did not rise.",
        [start, last],
    )


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
    # What rose before the first evaluation says nothing about later ones.
    if seen.steps[-1] <= last.steps[0] or seen.steps[0] > start.steps[-1]:
        return None
    return Seen(
        f"{len(seen)} evaluations gave the same numbers to the last digit ({seen.values[0]:.3g} for"
        f" {seen.metric.removeprefix('eval/')}), while the reward rose from {start} to {last}.",
        [seen, start, last],
    )


RULES = (
    Rule(
        "training_unlike_held_out",
        "warning",
        "Are my training data in order?",
        "reward reward_std rewards_std eval/NAME",
        "the first evaluation of the reward exceeds the mean reward of the first 5 steps, plus two standard errors, by"
        " 0.5 of the spread inside groups, by a fifth of the larger of the two values and by 3 standard errors of an"
        " evaluation; after 20 steps the reward has risen by less than 10% of that gap; and the evaluation has lost a"
        " quarter of its lead",
        "Training prompts pay for something else than evaluated ones do: their answers, targets or examples belong to"
        " other prompts, or another column or form is rewarded. What is learnt from them makes the policy worse at the"
        " task.",
        "Compare some training rows with evaluated ones (`groupwise sample`): does each answer, target or example"
        " belong to its prompt? If training prompts are only harder, nothing is wrong with them: begin with those that"
        " sometimes earn something.",
        "training prompts pay for something else than evaluated ones",
        [_training_unlike],
        causes=(
            "learning_rate_too_high too_few_members exploration_too_strong reward_ignores_answer reward_constant"
            " reward_missing samples_alike all_truncated policy_term_drowned not_finite weight_decay_too_high"
        ),
    ),
    Rule(
        "held_out_unlike_training",
        "warning",
        "Why is the evaluation so much worse than training?",
        "reward reward_std rewards_std eval/NAME",
        "the first evaluation of the reward lies below the mean reward of the first 5 steps, minus two standard"
        " errors, by 0.25 of the spread inside groups, by a tenth of the larger of the two values and by 3 standard"
        " errors of an evaluation; after 20 steps the newest evaluation has made up less than 10% of that gap, or the"
        " gap is as wide as before; and the reward has not fallen by 50% of it",
        "The policy earns the training rewards but not those of the evaluation, and did so before its first update."
        " Evaluated prompts have another form (template, system message, a missing mark at the end), or training"
        " prompts hold their own answer, or an earlier stage learnt them by heart. This is also found if evaluated"
        " prompts are meant to be harder.",
        "Print one training prompt and one evaluated prompt as the model reads them (`groupwise sample`, `groupwise"
        " check`), and compare them to the last token. Look for the answer inside the training prompts.",
        "evaluated prompts are not those that are trained on",
        [_held_out_unlike],
        causes="learning_rate_too_high weights_rewritten generator_drifts ratio_not_one average_lags",
    ),
    Rule(
        "average_lags",
        "warning",
        "Why does the evaluation not move while the reward rises?",
        "reward eval/NAME",
        "`train.weight_average.warm_up` is off, decay ** updates is above 0.5, and the reward has risen, but no reward"
        " that was evaluated twice or more lies more than a hundredth above its first value",
        "Evaluations, and the model that is kept, use an average of the weights. This average is still mostly the"
        " weights that training began with, so it lacks what was learnt.",
        "Lower train.weight_average.decay to about 1 - 10 / updates, set train.weight_average.warm_up = true, or train"
        " longer.",
        "the average of the weights has hardly left where it began",
        [_average_lags],
    ),
    Rule(
        "evaluation_repeats",
        "fault",
        "Why does the evaluation never change?",
        "reward reward_std eval/NAME",
        "every evaluated metric has had the same value, to the last digit, since the first evaluation, and at least 2"
        " of them are not whole numbers; an evaluation lies in the first 10 steps or before them, and one in the last"
        " 10; the reward has risen by 4 standard errors and 0.5 of the spread inside groups, and lies above an"
        " evaluated reward",
        "A policy that earns more writes other answers, also to evaluated prompts. So the evaluation does not use the"
        " policy that is trained: answers or scores come from a cache whose key does not contain the weights, or from"
        " the model that training began with.",
        "Put the step or a hash of the weights into the cache's key, or empty the cache after every update. Give the"
        " evaluation the model that is trained, with its adapter active (`groupwise sample` answers with the weights"
        " as they are).",
        "the evaluation repeats itself",
        [_repeats],
        causes="average_lags weights_unchanged weights_rewritten generator_drifts ratio_not_one",
    ),
)
