"""The rules of a server, measured on an adapter that is thrown away: how the losses of many tokens are reduced to one,
and whether gradients are clipped.

AdamW with `eps >> |g|` is SGD of the rate `learning_rate / eps`, so that the change of a log-prob after one step is the
inner product of two gradients. Four numbers tell the rules apart; a server of another rule is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

from groupwise.config import ConfigError
from groupwise.domain.language.tinker.client import Adapter, Service
from groupwise.domain.language.tinker.data import Sequenced
from groupwise.learner.protocol import StepNumbers

Reduction = Literal["sum", "mean_sequence", "mean_batch"]


@final
@dataclass(frozen=True)
class ServerRules:
    """The measured rules of a server.

    Args:
        reduction: how the losses of many tokens are reduced to one.
        clips: whether a step clips the gradient to the norm that the client names.

    Example:
        >>> ServerRules("sum", clips=False).reduction
        'sum'
    """

    reduction: Reduction
    clips: bool


_FEWER_TOKENS_AND_MORE_DATA: dict[Reduction, tuple[float, float]] = {
    "sum": (1.0, 1.0),
    "mean_sequence": (2.0, 1 / 2),
    "mean_batch": (2.0, 2 / 3),
}
_TOLERANCE = 0.1
_EPS = 1e6
_RESPONSE_NATS = 0.03
_TINY_NORM = 1e-12
"""A norm far below that of any gradient: a step that is clipped to it changes nothing."""


def factors(reduction: Reduction, counts: Sequence[int]) -> list[float]:
    """Returns the number that each datum's advantages are multiplied by so that the server's gradient is a sum.

    Args:
        reduction: the server's rule.
        counts: numbers of decisions of all data until the optimiser's step.

    Example:
        >>> factors("mean_sequence", [2, 3]), factors("mean_batch", [2, 3])
        ([4.0, 6.0], [5.0, 5.0])
    """
    if reduction == "mean_sequence":
        return [float(count * len(counts)) for count in counts]
    return [float(sum(counts)) if reduction == "mean_batch" else 1.0] * len(counts)


def measure_rules(service: Service) -> ServerRules:
    """Measures the server's rules and refuses a server whose rule is unknown or whose gradient is not linear.

    Raises:
        ConfigError: the gradient of the server follows none of the rules.
    """
    adapter = service.adapter(seed=0)
    try:
        return _measure(service, adapter)
    finally:
        adapter.unload()


def _measure(service: Service, adapter: Adapter) -> ServerRules:
    member = Sequenced([3, 4, 5], [6, 7, 8, 9, 10, 11, 12, 13], [True] * 8)
    half = Sequenced(member.prompt, member.tokens, [True] * 4 + [False] * 4)
    filler = Sequenced([5, 4], [9, 8, 7, 6], [True] * 4)
    first_half = [1.0] * 4 + [0.0] * 4
    start_path = adapter.save()
    (start,) = adapter.log_probs([member])
    (filler_start,) = adapter.log_probs([filler])
    old = {member.key: start, filler.key: filler_start}

    def response(
        requests: Sequence[Sequence[Sequenced]], rate: float, advantage: float = 1.0, max_grad_norm: float | None = None
    ) -> float:
        for members in requests:
            advantages = [
                [advantage * value for value in first_half] if row.key == member.key else [0.0] * len(row.tokens)
                for row in members
            ]
            adapter.accumulate(members, [old[row.key] for row in members], advantages)
        adapter.step(StepNumbers(rate * _EPS, beta1=0.0, beta2=0.0, eps=_EPS, max_grad_norm=max_grad_norm))
        (end,) = adapter.log_probs([member])
        adapter.load(start_path, moments=False)
        return sum(end[:4]) - sum(start[:4])

    rate, change = 1e-4, 0.0
    for _ in range(6):
        change = response([[member]], rate)
        if _RESPONSE_NATS / 3 < change < _RESPONSE_NATS * 3:
            break
        rate *= min(max(_RESPONSE_NATS / change, 1e-3), 1e3) if change > 0 else 1e2
    else:
        raise ConfigError(_refusal(service, f"a step along the gradient changed a log-prob by {change:.3g} nats"))
    ratios = {
        "opposite": response([[member]], rate, -1.0) / change,
        "tripled": response([[member]], rate / 3, 3.0) / change,
        "fewer": response([[half]], rate / 2) / change * 2,
        "more": response([[member, filler]], rate) / change,
        "split": response([[member], [filler]], rate) / change,
    }
    linear = abs(ratios["opposite"] + 1) < _TOLERANCE and abs(ratios["tripled"] - 1) < _TOLERANCE
    if linear and abs(ratios["split"] - ratios["more"]) < _TOLERANCE / 2:
        for reduction, (fewer, more) in _FEWER_TOKENS_AND_MORE_DATA.items():
            if abs(ratios["fewer"] - fewer) < _TOLERANCE and abs(ratios["more"] - more) < _TOLERANCE / 2:
                clipped_change = response([[member]], rate, max_grad_norm=_TINY_NORM)
                return ServerRules(reduction, clips=abs(clipped_change / change) < _TOLERANCE)
    measured = ", ".join(f"{name} {value:.3f}" for name, value in ratios.items())
    raise ConfigError(_refusal(service, f"measured {measured}"))


def _refusal(service: Service, evidence: str) -> str:
    return (
        f"model.address = {service.config.address!r}: the gradient of this server's importance_sampling is neither a"
        f" sum, nor a mean of sequences, nor a mean of the batch ({evidence}); use a server of one of these rules"
    )
