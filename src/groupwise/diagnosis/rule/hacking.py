"""A reward that rises while a judge that is not trained on falls."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage


def _look(stage: Stage) -> Seen | None:
    reward = stage.ends("reward")
    if reward is None or not reward[1].above(reward[0]):
        return None
    for name in stage.rewards(weighted=False):
        judge, spread = stage.ends(f"rewards/{name}/mean"), stage.first(f"rewards/{name}/std")
        if judge is None or spread is None or not judge[0].above(judge[1]) or judge[0].mean - judge[1].mean < 0.25 * spread.mean:
            continue
        what = (
            f"The reward rose from {number(reward[0].mean)} to {number(reward[1].mean)} while the judge {name}, which is not trained on, "
            f"fell from {number(judge[0].mean)} to {number(judge[1].mean)}."
        )
        return Seen(what, [*reward, *judge])
    return None


JUDGE_FALLS = Rule(
    "judge_falls",
    "warning",
    "Is the reward being hacked?",
    ("reward", "rewards/JUDGE/mean"),
    f"from the first to the last {WINDOW} steps the reward rose and a judge (weight 0) fell, beyond two standard errors, the judge by a quarter of its spread",
    "The policy has found a way to earn that is not what was meant: the reward and the goal have come apart.",
    "Look at rollouts/, mend the reward, add the judge's point of view to it, raise divergence.beta, or stop at the step where the judge was best.",
    _look,
)
