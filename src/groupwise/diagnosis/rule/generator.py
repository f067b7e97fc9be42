"""A generator that no longer samples from the policy that is trained."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.stage import Stage

_METRIC = "sampling/sampling_logp_difference/mean"
_NEWEST = 3
_GROWTH = 10.0
_NATS = 0.02


def _look(stage: Stage) -> Seen | None:
    start, newest = stage.first(_METRIC, 1), stage.last(_METRIC, _NEWEST)
    if start is None or newest is None or stage.count(_METRIC) <= _NEWEST:
        return None
    # Truncation by top-p makes a difference as well, from the first step on and of about the same size.
    if min(newest.values) < max(_NATS, _GROWTH * start.mean):
        return None
    return Seen(
        f"The sampler's log-probs are {number(newest.mean)} nats a decision from the policy's, and were"
        f" {number(start.mean)} in the first step.",
        [start, newest],
    )


GENERATOR_DRIFTS = Rule(
    "generator_drifts",
    "fault",
    "Is the server sampling from the model that is trained?",
    (_METRIC,),
    f"the difference of sampled from trained log-probs is at least {_GROWTH:g} times that of the first step and"
    f" {_NATS:g} nats in each of the last {_NEWEST} steps",
    "The generator does not receive the trained weights: an older policy earns the rewards, and updates"
    " change a policy that does not sample.",
    "Leave domain.engine.sync unset, so that the servers receive the weights; with domain.engine.sync ="
    ' "none" send them yourself after every update, or correct for the lag with method = METHOD+tis.',
    _look,
    phrase="the generator does not sample from the trained weights",
)
