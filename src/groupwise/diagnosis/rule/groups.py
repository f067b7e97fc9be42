"""Groups whose members all got the same reward: nothing to compare."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_LOOK = (
    "Look at rollouts/ and at completions/mean_length before you use this model. A reward with role = 'judge' measures"
    " the goal and is not trained on. To go on from here, take harder prompts or a finer reward."
)

_MOST_WRONG = 0.1
"""Share of groups that earn nothing at all, above which what is learnt is not what the prompts could teach."""
_TRY_AGAIN = (
    "Where the policy is wrong, it must go on trying other answers. Make the supervised stage before this one longer,"
    " lower optimiser.learning_rate, set entropy = 0.001 or more, or take a higher domain.sampling.temperature or a"
    " larger train.group_size."
)


def _look(stage: Stage) -> Seen | None:
    flat, reward, start = stage.last("frac_reward_zero_std"), stage.last("reward"), stage.first("reward")
    if flat is None or reward is None or start is None or flat.mean < 0.95:
        return None
    sentence = (
        f"{flat.mean:.0%} of the groups of the last {WINDOW} steps had equal rewards (mean reward"
        f" {number(reward.mean)})."
    )
    if reward.above(start) and reward.mean > start.mean:
        risen = f"The reward has risen from {number(start.mean)}, and now all members of a group earn the same"
        if (wrong := stage.last("groups/all_wrong")) is not None and wrong.mean > _MOST_WRONG:
            means = (
                f"{risen}. In {wrong.mean:.0%} of the groups they earn nothing: there the policy is sure and wrong, and"
                " since all members are alike, nothing corrects it."
            )
            return Seen(sentence, [flat, wrong, reward], "warning", means, _TRY_AGAIN)
        if _grown(stage):
            return Seen(
                sentence,
                [flat, reward],
                "warning",
                f"{risen}, while answers grew. Perhaps the policy has learnt to be long.",
                _LOOK,
            )
        if not judged(stage):
            return Seen(
                sentence,
                [flat, reward],
                "note",
                f"{risen}. No judge shows that they earn it as you meant.",
                _LOOK,
            )
        means = f"{risen}, and no judge has fallen. The policy has learnt what the prompts could teach."
        return Seen(
            sentence, [flat, reward], "note", means, "Stop here, or go on with harder prompts or a finer reward."
        )
    return Seen(sentence, [flat, reward])


def _grown(stage: Stage) -> bool:
    """Returns whether answers are half as long again as when the stage began, or the length limit now cuts off what it
    did not cut off then.
    """
    lengths, cut = stage.ends("completions/mean_length"), stage.ends("completions/clipped_ratio")
    longer = lengths is not None and lengths[1].mean >= 1.5 * lengths[0].mean and lengths[1].above(lengths[0])
    return longer or (cut is not None and cut[1].mean >= 0.5 and cut[1].above(cut[0]))


def judged(stage: Stage) -> bool:
    """Returns whether judges, which are not trained on, are measured, and none has fallen."""
    judge_ends = [
        ends for name in stage.rewards(weighted=False) if (ends := stage.ends(f"rewards/{name}/mean")) is not None
    ]
    evaluated = stage.evaluated_judges()
    return (
        bool(judge_ends or evaluated)
        and not any(start.above(last) for start, last in judge_ends)
        and all(series.values[-1] >= series.values[0] for series in evaluated)
    )


ALL_FLAT = Rule(
    "all_flat",
    "fault",
    "Why does nothing happen? Why is the loss exactly 0?",
    ("frac_reward_zero_std", "reward", "groups/all_wrong"),
    f"at least 95 % of the groups are flat over {WINDOW} steps; if the reward had risen before, this is a note, or"
    " a warning if answers grew with the reward or more than a tenth of the groups earn nothing",
    "In a flat group all members earn the same, so every advantage is 0 and the group teaches nothing. The"
    " mean reward tells whether the prompts are too hard or too easy.",
    "Take easier or harder prompts, a reward with more levels, a higher domain.sampling.temperature, a larger"
    " train.group_size, or a supervised stage before this one.",
    _look,
    phrase="all groups are flat",
    follows=(
        "divergence_negative",
        "reference_elsewhere",
        "advantage_turned",
        "prompts_truncated",
        "reward_constant",
        "reward_ignores_answer",
        "weight_decay_too_high",
        "exploration_too_strong",
        "reward_follows_length",
        "samples_alike",
        "reward_missing",
        "all_truncated",
        "learning_rate_too_high",
        "entropy_collapse",
        "prompts_never_earn",
    ),
)
