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
        f"The sampler's log-probs differ from the policy's by {number(newest.mean)} nats a decision; in the first step"
        f" by {number(start.mean)}.",
        [start, newest],
    )


GENERATOR_DRIFTS = Rule(
    "generator_drifts",
    "fault",
    "Is the server sampling from the model that is trained?",
    (_METRIC,),
    f"in each of the last {_NEWEST} steps, the log-probs of the sampler and of the trained policy differ by at"
    f" least {_GROWTH:g} times as much as in the first step and by {_NATS:g} nats",
    "The generator does not receive the trained weights: an older policy earns the rewards, and updates"
    " change a policy that does not sample.",
    'Leave domain.engine.sync unset, so that the servers receive the weights. With domain.engine.sync = "none",'
    " send them yourself after every update, or correct for the lag with method = METHOD+tis.",
    _look,
    phrase="the generator does not sample from the trained weights",
)
