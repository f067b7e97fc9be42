"""Other terms of the loss that leave the reward no say: a divergence that holds the policy, an auxiliary term that
drowns it.
"""

from __future__ import annotations

from groupwise.diagnosis.rule.base import Rule, Seen, number, rewards_rise
from groupwise.diagnosis.rule.evaluation import evaluations_stay
from groupwise.diagnosis.rule.supervised_loss import first_loss, last_loss
from groupwise.diagnosis.series import WINDOW
from groupwise.diagnosis.stage import Stage

_FEW = 10
_ALLOWED = 0.1
_DROWNED = 20.0
_START = 5
_LEARNT = 0.25
"""Share of its first value to which a supervised loss has fallen that was learnt."""
_AUXILIARY = ("loss_sup", "loss_cons", "loss_l2")


def _advantages(stage: Stage) -> float | None:
    """Returns the spread of advantages in groups that differ; `None` where hardly any does."""
    spread, flat = stage.last("advantages_std", _FEW), stage.last("frac_reward_zero_std", _FEW)
    if spread is None or flat is None or flat.mean > 0.9 or spread.mean <= 0:
        return None
    return spread.mean / (1 - flat.mean) ** 0.5


def _holds(stage: Stage) -> Seen | None:
    loss, kl, size = stage.last("loss_kl", _FEW), stage.last("kl", _FEW), _advantages(stage)
    if loss is None or kl is None or size is None or kl.mean <= 0 or stage.num_steps < WINDOW or rewards_rise(stage):
        return None
    beta = loss.mean / kl.mean
    if beta <= 0 or size / beta > _ALLOWED:
        return None
    return Seen(
        f"The divergence has the coefficient {number(beta)}, and the advantages have a spread of {number(size)}: they"
        f" balance when a log-prob has moved by about {number(size / beta)} nats. The reward has not risen.",
        [loss, kl],
    )


def _drowned(stage: Stage) -> Seen | None:
    size = _advantages(stage)
    terms = [term for name in _AUXILIARY if (term := stage.last(name, _FEW)) is not None]
    if size is None or not terms or stage.num_steps < WINDOW or rewards_rise(stage):
        return None
    largest = max(terms, key=lambda term: term.mean)
    if largest.mean < _DROWNED * size:
        return _learnt_alone(stage)
    return Seen(
        f"{largest.metric} is {number(largest.mean)}, and advantages have a spread of {number(size)}: nearly the whole"
        " gradient comes from that term. The reward has not risen.",
        [largest],
    )


def _learnt_alone(stage: Stage) -> Seen | None:
    """Judges what was learnt: a supervised loss that fell to a small part of what it was, beside a reward that stands
    still and is evaluated no higher. Its targets do not earn, and the weights went after them.
    """
    earned, start, last = stage.ends("reward"), first_loss(stage, _START), last_loss(stage, _FEW)
    if earned is None or earned[1].above(earned[0]) or not evaluations_stay(stage):
        return None
    if start is None or last is None or not 0 < last.mean < _LEARNT * start.mean:
        return None
    return Seen(
        f"The supervised loss fell from {number(start.mean)} to {number(last.mean)}, and the reward has not risen"
        f" ({number(earned[0].mean)} at first, {number(earned[1].mean)} now): the policy has learnt only that term.",
        [start, last, *earned],
    )


DIVERGENCE_HOLDS = Rule(
    "divergence_holds",
    "warning",
    "Does the divergence hold my policy back?",
    ("loss_kl", "kl", "advantages_std", "frac_reward_zero_std", "reward"),
    f"from step {WINDOW} on, over {_FEW} steps, the spread of the advantages divided by the divergence's"
    f" coefficient is below {_ALLOWED:g} nats, and the reward has not risen",
    "A log-prob moves until the divergence pulls it back as strongly as the advantages push it. This quotient is"
    " about how far that is: the policy may not leave its reference.",
    "Take a hundredth of divergence.beta (0.001 to 0.1 is usual), or divergence.kind = none.",
    _holds,
    phrase="the divergence holds the policy",
)
POLICY_TERM_DROWNED = Rule(
    "policy_term_drowned",
    "warning",
    "Does another term of the loss decide alone?",
    (*_AUXILIARY, "lambda_sup", "advantages_std", "frac_reward_zero_std", "reward", "rewards_std", "eval/NAME"),
    f"from step {WINDOW} on, over {_FEW} steps, an auxiliary term of the loss is at least {_DROWNED:g} times the"
    " spread of the advantages of groups that differ, and the reward has not risen; or the supervised loss,"
    f" without its coefficient, has fallen to {_LEARNT:g} of its value in the first {_START} steps, and neither"
    " the reward nor an evaluation has risen",
    "The gradient is that of the auxiliary term, so the reward has hardly any part in what is learnt. If the term"
    " is learnt and earns nothing, its targets may not be what the reward wants.",
    "Look at the targets of the auxiliary term: does a policy that repeats the demonstrations earn anything?"
    " Lower auxiliary.supervised, auxiliary.consistency or train.l2_to_reference until the term is about as large"
    " as the advantages, or raise policy_weight.",
    _drowned,
    phrase="another term of the loss drowns the reward",
    follows=("learning_rate_too_high",),
)
