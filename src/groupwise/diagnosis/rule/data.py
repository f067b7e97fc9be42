"""Training prompts that are not those of the evaluation."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.rule.start_gap import CLOSED, ERRORS, FEW, start_gap
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_BELOW = 0.5
_ABOVE = 0.25
_FALLEN = 0.5


def _look(stage: Stage) -> Seen | None:
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
    f" {ERRORS:g} standard errors of an evaluation; after {WINDOW} steps the newest evaluation has made up less"
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
    f" {ERRORS:g} standard errors of an evaluation; after {WINDOW} steps the reward has risen by less than"
    f" {CLOSED:.0%} of that gap; and the evaluation has lost a quarter of its lead",
    "Training prompts pay for something else than evaluated ones do: their answers, targets or examples belong to"
    " other prompts, or another column or form is rewarded. What is learnt from them makes the policy worse at"
    " the task.",
    "Compare some training rows with evaluated ones (`groupwise sample`): does each answer, target or example"
    " belong to its prompt? If training prompts are only harder, nothing is wrong with them: begin with those"
    " that sometimes earn something.",
    _look,
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
