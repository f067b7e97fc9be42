"""An average of the weights that is still where it began."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.rule.evaluation import evaluations_rise
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_SHARE = 0.5


def _look(stage: Stage) -> Seen | None:
    decay, ends = stage.setting("train.weight_average.decay"), stage.ends("reward", WINDOW // 2)
    if not isinstance(decay, int | float) or stage.setting("train.weight_average.warm_up") is not False:
        return None
    if ends is None or not ends[1].above(ends[0]) or not stage.evaluated_rewards() or evaluations_rise(stage):
        return None
    updates = stage.num_steps
    for name in ("updates_per_batch", "minibatches"):
        count = stage.setting(f"train.{name}")
        updates *= count if isinstance(count, int) else 1
    share = float(decay) ** updates
    if share <= _SHARE:
        return None
    return Seen(
        f"After {updates} updates the average of the weights (train.weight_average.decay = {number(float(decay))}) is"
        f" still made up to {number(100 * share)} % of the weights that the stage began with. The reward rose from"
        f" {number(ends[0].mean)} to {number(ends[1].mean)}; the evaluations, which use the average, did not rise.",
        ends,
    )


AVERAGE_LAGS = Rule(
    "average_lags",
    "warning",
    "Why does the evaluation not move while the reward rises?",
    ("reward", "eval/NAME"),
    f"`train.weight_average.warm_up` is off, decay ** updates is above {_SHARE}, and the reward has risen, but no"
    " reward that was evaluated twice or more lies more than a hundredth above its first value",
    "Evaluations, and the model that is kept, use an average of the weights. This average is still mostly the"
    " weights that training began with, so it lacks what was learnt.",
    "Lower train.weight_average.decay to about 1 - 10 / updates, set train.weight_average.warm_up = true, or train"
    " longer.",
    _look,
    phrase="the average of the weights has hardly left where it began",
)
