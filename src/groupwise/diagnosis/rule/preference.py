"""What the reward prefers inside groups: longer members, or those that a judge likes less."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.rule.groups import judged
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_FOLLOWS_LENGTH = 0.9
_AT_THE_LIMIT = 0.5
_GROWTH = 1.25
_FEW = 5
_AGAINST = -0.2


def _length(stage: Stage) -> Seen | None:
    correlation, lengths = stage.first("groups/length_correlation"), stage.ends("completions/mean_length")
    if correlation is None or lengths is None:
        return None
    start, last = lengths
    cut = stage.first("completions/clipped_ratio", _FEW), stage.last("completions/clipped_ratio")
    to_the_limit = cut[0] is not None and cut[1] is not None and cut[0].mean < 0.1 and cut[1].mean > 0.5
    if correlation.mean < (_AT_THE_LIMIT if to_the_limit else _FOLLOWS_LENGTH):
        return None
    # Where a judge does not fall, longer members are what was meant.
    if not last.above(start) or last.mean < _GROWTH * start.mean or judged(stage):
        return None
    sentence = (
        f"From the start, the longer members of a group earned more (correlation {number(correlation.mean)}), and"
        f" members have grown from {number(start.mean)} to {number(last.mean)} decisions."
    )
    return Seen(sentence, [correlation, start, last])


REWARD_FOLLOWS_LENGTH = Rule(
    "reward_follows_length",
    "warning",
    "Is length what my reward pays for?",
    ("groups/length_correlation", "completions/mean_length", "completions/clipped_ratio"),
    f"over the first {WINDOW} steps the correlation inside groups of reward and number of decisions is at least"
    f" {_FOLLOWS_LENGTH} ({_AT_THE_LIMIT} if most members now end at the length limit and hardly any did at"
    f" first), and the mean length of the last {WINDOW} steps is at least {_GROWTH} times that of the first."
    " The rule is silent if judges are measured and none has fallen",
    "The longer member earns more, whatever it says, so the policy learns to be long. This is right only if the"
    " task itself wants long answers.",
    "Look at the longest members in rollouts/. If length is not the goal, take it out of the reward, or add a"
    " reward with domain.rewards.NAME.kind = soft_overlong. A reward with role = 'judge' measures the goal and is"
    " not trained on.",
    _length,
    phrase="the reward pays for length",
    follows=("reward_dominates",),
)


def _judge(stage: Stage) -> Seen | None:
    for name in stage.rewards(weighted=False):
        agreement = stage.last(f"rewards/{name}/agreement")
        if agreement is None or agreement.mean > _AGAINST or agreement.mean + 2 * agreement.error > 0:
            continue
        return Seen(
            f"The members of a group that earn more are those that the judge {name} likes less (correlation"
            f" {number(agreement.mean)} over the last {WINDOW} steps).",
            [agreement],
        )
    return None


JUDGE_DISAGREES = Rule(
    "judge_disagrees",
    "warning",
    "Does the reward pay for the opposite of what I want?",
    ("rewards/JUDGE/agreement",),
    f"over {WINDOW} steps the correlation inside groups of the reward with a judge (weight 0) is {_AGAINST} or"
    " less, and two standard errors below 0",
    "Every update makes more likely what the judge likes less. This shows, before the judge falls, that the"
    " reward does not pay for the goal.",
    "Look at a group in rollouts/ with the judge's value beside the reward. Mend the reward, or also train on"
    " what the judge sees, with a reward of its own (domain.rewards.NAME.weight).",
    _judge,
    phrase="the reward prefers what the judge likes less",
    follows=("reward_dominates", "reward_follows_length"),
)
