"""A policy that forgets what it knew and draws more and more at random."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number, rewards_rise
from groupwise.diagnosis.stage import Stage

_FEW = 5
_GROWTH = 2.0
_NATS = 0.5


def _look(stage: Stage) -> Seen | None:
    ends = stage.ends("surprisal", _FEW)
    if ends is None or rewards_rise(stage, _FEW):
        return None
    start, last = ends
    if min(start.values) < 0 or last.mean < max(_NATS, _GROWTH * start.mean) or not last.above(start):
        return None
    reward = stage.ends("reward", _FEW)
    sentence = f"The surprisal of what is sampled rose from {number(start.mean)} to {number(last.mean)} nats a decision"
    coefficient = stage.setting("objective.entropy")
    paid = isinstance(coefficient, int | float) and coefficient > 0
    return Seen(
        f"{sentence}, and the reward did not rise"
        + (f" ({number(reward[0].mean)} at first, {number(reward[1].mean)} now)." if reward else "."),
        [start, last, *(reward or ())],
        means=f"The entropy bonus (entropy = {number(coefficient)}) pays more than the reward does." if paid else "",
        advice="Take a tenth of entropy, or 0." if paid else "",
    )


POLICY_BECOMES_RANDOM = Rule(
    "policy_becomes_random",
    "warning",
    "Why does my model write nonsense after some steps?",
    ("surprisal", "reward"),
    f"the surprisal of the last {_FEW} steps is at least {_GROWTH:g} times that of the first {_FEW} and at least"
    f" {_NATS} nats a decision, and the reward has not risen",
    "The policy samples more and more at random. Something other than the reward moves it: an entropy bonus,"
    " weight decay, or steps that are too large.",
    "Lower entropy, optimiser.weight_decay or optimiser.learning_rate, whichever is unusually high, or set"
    " divergence.beta above 0.",
    _look,
    phrase="the policy becomes random",
    follows=(
        "reference_elsewhere",
        "divergence_negative",
        "advantage_turned",
        "learning_rate_too_high",
        "weight_decay_too_high",
        "generator_drifts",
        "ratio_not_one",
    ),
    steps="smaller",
)
