"""A policy that runs away from its reference."""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number
from groupwise.diagnosis.rule.learning_rate import UNMOVED
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage


def _look(stage: Stage) -> Seen | None:
    count = stage.count("kl")
    start, last = stage.first("kl", WINDOW // 2), stage.last("kl", WINDOW // 2)
    before = stage.kl_before(WINDOW // 2, max(WINDOW // 2, count // 3))
    reward = stage.ends("reward", WINDOW // 2)
    if start is None or last is None or before is None or reward is None or count < 2 * WINDOW:
        return None
    grown, earlier = last.mean - before.mean, max(before.mean - start.mean, 0.0)
    # A drift at constant pace grows by half as much in the last third as in the two before; a random walk's square by a
    # little more than they.
    accelerates = last.mean > UNMOVED and grown > 3 * earlier and last.mean > 2 * before.mean and last.above(before)
    far = last.mean > 1.0
    allowed = _allowed(stage)
    if allowed is not None and last.mean <= allowed:
        return None
    if not (accelerates or far) or reward[1].above(reward[0]):
        return None
    sentence = (
        f"The divergence from the reference went from {number(before.mean)} to {number(last.mean)} nats a decision in"
        " the last third of the steps"
    )
    return Seen(
        f"{sentence}, and the reward has not risen ({number(reward[0].mean)} at first, {number(reward[1].mean)} now).",
        [before, last, reward[1]],
    )


def _allowed(stage: Stage) -> float | None:
    """Returns the divergence in nats up to which a coefficient that follows it is content: it falls below that by
    design.

    Returns:
        `upper` of a multiplicative coefficient, `target` of an adaptive one, None of any other.
    """
    for key in ("upper", "target"):
        limit = stage.setting(f"objective.divergence.beta.{key}")
        if isinstance(limit, int | float) and not isinstance(limit, bool):
            return float(limit)
    return None


KL_RUNAWAY = Rule(
    "kl_runaway",
    "warning",
    "Why does my KL explode?",
    ("kl", "reward"),
    f"after {2 * WINDOW} steps the KL is above 1 nat a decision, or it is above {UNMOVED:g} and grew three"
    " times as much in the last third as before; it is also above the target or upper bound of a beta that"
    " adapts; and the reward has not risen",
    "The policy moves away from its reference and earns no more for it.",
    "Lower optimiser.learning_rate, raise divergence.beta or set divergence.beta.kind = adaptive, narrow the"
    " trust region, or lower train.max_grad_norm.",
    _look,
    phrase="the policy runs away from its reference",
    follows=("learning_rate_too_high", "weight_decay_too_high", "policy_becomes_random"),
    steps="smaller",
)
